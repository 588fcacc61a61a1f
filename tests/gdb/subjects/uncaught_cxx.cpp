// Throws what nothing catches, by a number: argv[1]. The C++ library says on stderr what it was.
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

static const char *TEXT = "CUDA error: an illegal memory access";
struct Derived : std::runtime_error { using std::runtime_error::runtime_error; };
struct Computed : std::runtime_error {
    using std::runtime_error::runtime_error;
    const char *what() const noexcept override { return "computed"; }
};
struct Other : std::exception { char text[8] = "text"; };
namespace space { template <class T> struct Of : std::out_of_range { using std::out_of_range::out_of_range; }; }

static void caught() { try { throw Derived("caught before"); } catch (...) {} }
static void last(int kind) noexcept {
    caught();
    switch (kind) {
    case 0: throw std::runtime_error(TEXT);
    case 1: throw Derived(TEXT);
    case 2: throw Computed(TEXT);
    case 3: throw Other();
    case 4: throw space::Of<int>(std::string("index \n") + TEXT);
    case 5: throw 42;
    case 6: throw TEXT;
    case 7: try { throw Derived("first"); } catch (...) { throw std::logic_error("second"); }
    case 8: try { throw Derived("again"); } catch (...) { throw; }
    case 9: std::terminate();
    case 10: std::abort();
    }
}
int main(int argc, char **argv) { last(std::atoi(argv[1])); }
