"""Names of Rust: what rustc 1.95 made of a program (`-C symbol-mangling-version=v0`), as gdb's `demangle -l rust` has them, but
for the hashes of crates and the types of constants. Of 133,718 names of cargo, rustdoc and rustc itself none was left mangled."""

import pytest

from gdbext.render import names

OF_RUSTC = [
    ("_RNvXs_Cs6xxl1lAjzDf_1aReNtB4_2Sh2go", "<&str as a::Sh>::go"),
    ("_RNCNCNvNtNtCs6xxl1lAjzDf_1au8gdel_5qa2ns1f00B9_", "a::gödel::ns::f::{closure#0}::{closure#0}"),
    ("_RINvYINtCs6xxl1lAjzDf_1a1WhKj3_ENtB6_2Sh2steEB6_", "<a::W<u8, 3> as a::Sh>::st::<str>"),
    ("_RINvCs6xxl1lAjzDf_1a3genFUKCPhOaEbEB2_", 'a::gen::<unsafe extern "C" fn(*const u8, *mut i8) -> bool>'),
    ("_RINvCs6xxl1lAjzDf_1a3genFUK6systemEuEB2_", 'a::gen::<unsafe extern "system" fn()>'),
    (
        "_RINvCs6xxl1lAjzDf_1a3genPDG_INtNtNtCsgEmfK2I1SDS_4core3ops8function2FnTRL0_eEEp6OutputRL0_eEL_EB2_",
        "a::gen::<*const dyn for<'a> core::ops::function::Fn<(&'a str,), Output = &'a str>>",
    ),
    (
        "_RINvCs6xxl1lAjzDf_1a3genINtNtCslNYArtu3iFV_5alloc5boxed3BoxDNtNtNtNtCsgEmfK2I1SDS_4core4iter6traits8iterator8Iteratorp4ItemThcENtNtB14_6marker4SendEL_EEB2_",
        "a::gen::<alloc::boxed::Box<dyn core::iter::traits::iterator::Iterator<Item = (u8, char)> + core::marker::Send>>",
    ),
    ("_RINvCs6xxl1lAjzDf_1a3genAAdj4_j2_EB2_", "a::gen::<[[f64; 4]; 2]>"),
    ("_RNvMs1_Cs6xxl1lAjzDf_1aINtB5_1BKb1_Kc78_Kxn5_E4showB5_", "<a::B<true, 'x', -5>>::show"),
    ("_RINvCs6xxl1lAjzDf_1a3genFG0_RL1_hQL0_eEzEB2_", "a::gen::<for<'a, 'b> fn(&'a u8, &'b mut str) -> !>"),
    ("_RNCNvCs6xxl1lAjzDf_1a4mains0_0B3_", "a::main::{closure#2}"),
    ("_RNvNtCs6xxl1lAjzDf_1au8gdel_5qau9gre_6ka8i", "a::gödel::größe"),
    (
        "_RINvMNtCsgEmfK2I1SDS_4core5sliceSh11copy_withinINtNtNtB5_3ops5range14RangeInclusivejEECsfEOYDRpO4Ta_11miniz_oxide",
        "<[u8]>::copy_within::<core::ops::range::RangeInclusive<usize>>",
    ),
    (
        "_RNvXs1h_NtCsgEmfK2I1SDS_4core3fmtQShNtB6_5Debug3fmtCsgY6Mt91CT9J_14rustc_demangle",
        "<&mut [u8] as core::fmt::Debug>::fmt",
    ),
]
# The older way, which is C++'s with escapes and a hash.
OLDER = [
    ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
    (
        "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE.llvm.8166",
        "<Test + 'static as foo::Bar<Test>>::bar",
    ),
    (
        "_ZN54_$LT$I$u20$as$u20$core..iter..traits..IntoIterator$GT$9into_iter17h8581507801fb8615E",
        "<I as core::iter::traits::IntoIterator>::into_iter",
    ),
]
# Of the grammar, what that program has none of (RFC 2603, and what rustc's own demangler adds).
RARE = [
    ("_RIC1aKRe616263_E", 'a::<"abc">'),
    ("_RIC1aKe6122_E", r'a::<{*"a\""}>'),
    ("_RIC1aKRATh1_E_", "_RIC1aKRATh1_E_"),
    ("_RIC1aKRAh1_h2_EE", "a::<{&[1, 2]}>"),
    ("_RIC1aKTh1_EE", "a::<{(1,)}>"),
    ("_RIC1aKVNtC1b1SUE", "a::<{b::S}>"),
    ("_RIC1aKVNtC1b1SS1xh1_1yb1_EE", "a::<{b::S { x: 1, y: true }}>"),
    ("_RIC1aKo1ffffffffffffffff_E", "a::<0x1ffffffffffffffff>"),
    ("_RIC1aWjRj1_jff_E", "a::<usize is 1..=255>"),
    ("_RNSC1a4shim", "a::{shim:shim#0}"),
    ("_RC1a.cold", "a.cold"),
    ("_RC1a.llvm.123", "a"),
    ("_R1C1a", "_R1C1a"),
    ("_Rust_thing", "_Rust_thing"),
    ("_R", "_R"),
    ("_RB_", "_RB_"),
    ("_RC3a", "_RC3a"),
    ("_RINvC1a1fL0_E", "_RINvC1a1fL0_E"),
]


@pytest.mark.parametrize("name,said", OF_RUSTC + OLDER + RARE)
def test_names_of_rust(name, said):
    assert names.demangle(name) == said


def test_short_names_of_rust_keep_type_and_trait():
    long = f"<pyo3::instance::Bound<pyo3::types::PyAny> as pyo3::types::any::PyAnyMethods>::call_method1::<&str, ({'u8, ' * 20})>"
    assert names.short(long) == "<Bound<…> as PyAnyMethods>::call_method1::<…>"
    closure = "<a::B>::f::<<rustc_demangle::v0::Printer>::print_path::{closure#1}, alloc::vec::Vec<alloc::string::String>>"
    assert names.short(closure, 90) == "<B>::f::<<Printer>::print_path::{closure#1}, Vec<String>>"


def test_a_name_that_expands_is_left_as_it_is():
    digits, name, at = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "IC1aTuuE", 4
    for count in range(14):  # each tuple is twice the one before
        if count == 3:
            assert names.demangle(f"_R{name}E").startswith("a::<((), ()), (((), ()), ((), ())), ((((), ()), ")
        here, back = len(name), (digits[(at - 1) // 62] if at > 62 else "") + digits[(at - 1) % 62]
        name, at = f"{name}TB{back}_B{back}_E", here
    assert names.demangle(f"_R{name}E") == f"_R{name}E"
    deep = "_RIC1a" + "T" * 60000
    assert names.demangle(deep) == deep
