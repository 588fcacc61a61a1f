// A C++ program with a value of every kind that the printers show; stops in `here`.
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Scalar.h>
#include <cstdio>

__attribute__((noinline)) void here(const at::Tensor& reference, at::Tensor* pointer, c10::TensorImpl* impl) {
  asm volatile("" ::: "memory");
  std::fflush(stdout);
}

int main() {
  at::Tensor t = at::arange(6).reshape({2, 3}).to(at::kFloat);
  at::Tensor undefined, big = at::zeros({1000, 1000}), half = t.to(at::kBFloat16);
  c10::Storage storage = t.storage();
  std::vector<int64_t> numbers(300, 7);
  c10::ArrayRef<int64_t> few(numbers.data(), 3), many(numbers), damaged(numbers.data(), 1ULL << 60);
  at::IntArrayRef sizes = t.sizes();
  c10::SymInt plain(5), negative(-3);
  std::optional<c10::ScalarType> no_type, a_type = at::kHalf;
  std::optional<at::Tensor> a_tensor = t;
  at::OptionalIntArrayRef no_sizes, some_sizes(few);
  c10::Scalar si(42), sd(2.5), sb(true), sz(c10::complex<double>(1, -2));
  c10::Device cpu(c10::kCPU), gpu(c10::kCUDA, 3);
  c10::ScalarType type = at::kBFloat16;
  caffe2::TypeMeta meta = t.dtype();
  c10::DispatchKeySet keys = t.key_set();
  c10::intrusive_ptr<c10::TensorImpl> held = t.getIntrusivePtr(), empty;
  c10::IValue none, ivalue_int(5), ivalue_double(0.5), ivalue_bool(true), ivalue_tensor(t), ivalue_string(std::string("text"));
  c10::List<int64_t> list({1, 2, 3});
  c10::IValue ivalue_list(list);
  c10::Dict<std::string, int64_t> dict;
  dict.insert("one", 1);
  dict.insert("two", 2);
  std::printf("%p %p\n", (void*)t.unsafeGetTensorImpl(), t.data_ptr());
  here(t, &t, t.unsafeGetTensorImpl());
  return (int)(big.numel() + half.numel() + many.size() + sizes.size() + list.size() + dict.size() + held.use_count()) == 0;
}
