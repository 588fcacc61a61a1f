"""Which of a process's attention kernels its engine uses, by names as llm-kernels gave them of vLLM 0.26 on an H200."""

from gdbext.kernels import signatures
from gdbext.kernels.catalogue import BreakpointSite, Row, catalogue
from gdbext.kernels.in_use import in_use, serving

FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
    "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<64>, cute::C<128>, cute::C<{0}> >, {0}, cutlass::{1}, "
    "float, cutlass::arch::Sm90, {2}> > > >(flash::Params)"
)
FA2 = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<{0}, 128, 64, 4, false, false, cutlass::{1}, "
    "Flash_kernel_traits<{0}, 128, 64, 4, cutlass::{1}> >, {2}>(pytorch_flash::Flash_fwd_params)"
)


def row(kernel, forms, *, engine="", library="lib.so", where="host"):
    entry = next(k for k in catalogue().kernels if k.kernel == kernel.rpartition("::")[2])
    sites = [BreakpointSite(i, 1, "", signatures.parse(text), "wrapper") for i, text in enumerate(forms)]
    return Row(entry, kernel, library, engine, where, sites)


def forms(pattern):
    return [pattern.format(h, e, n) for h in (64, 128, 256) for e in ("bfloat16_t", "half_t") for n in ("true", "false")]


TRITON = row("kernel_unified_attention", [], where="driver", library="", engine="vllm")
OTHER = row("_fwd_kernel", [], where="driver", library="", engine="vllm")
OWN = row("FlashAttnFwdSm90", forms(FA3), engine="vllm")
TORCHS = row("pytorch_flash::flash_fwd_kernel", forms(FA2))


def test_what_triton_has_loaded_comes_before_libraries():
    every = [OTHER, TORCHS, TRITON, OWN]
    assert in_use(every, {"kernel_unified_attention", "reduce_segments"}) == [TRITON]
    assert in_use(every, {"reduce_segments"}) == [OWN]
    assert in_use([OTHER, TORCHS], set()) == [TORCHS]
    assert in_use([OTHER, TRITON], set()) == [OTHER, TRITON]  # loaded by none: waited for


def test_instances_for_another_head_size_or_type_are_left_out():
    for one in (OWN, TORCHS):
        (left,) = serving([one], 128, "bfloat16")
        assert len(left.sites) == 2 and len(one.sites) == 12
        assert all("128" in p.signature.text and "bfloat16_t" in p.signature.text for p in left.sites)
    assert serving([OWN], 96, "bfloat16") == [OWN]  # none of them: nothing is known of what it is then
    assert serving([OWN], 128, "int4") == [OWN]
    assert serving([TRITON], 128, "bfloat16") == [TRITON]
