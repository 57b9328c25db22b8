//! Programs made to exhaust the checks: each check ends in time, with any findings.

use super::{Language, check};

#[test]
fn hostile_programs_end_in_time() {
    let mut doubling = "const x0 = 'a';".to_owned();
    for step in 1..300 {
        doubling.push_str(&format!("const x{step} = x{0} + x{0};\n", step - 1));
    }
    doubling.push_str("globalThis[x299]('x')");
    let mut names = "const x0 = eval;".to_owned();
    for step in 1..5_000 {
        names.push_str(&format!("const x{step} = x{};\n", step - 1));
    }
    names.push_str("x4999('x')");
    for code in [
        doubling.as_str(),
        &names,
        &"(".repeat(25_000),
        &"[".repeat(25_000),
        &"{".repeat(25_000),
        &"`${".repeat(25_000),
        &format!("{}{}", "(".repeat(25_000), ")".repeat(25_000)),
        &format!("x{}", ".a".repeat(50_000)),
        &format!("x{}", "()".repeat(50_000)),
        &format!("'a'{}", "+'a'".repeat(25_000)),
        &"function f(){".repeat(12_000),
        &"(x)=>".repeat(12_000),
        &"if(a)".repeat(12_000),
        &"a=>{var x;".repeat(7_000),
        &"var a;".repeat(12_000),
        &(0..10_000).map(|n| format!("var v{n};")).collect::<String>(),
        &"eval(".repeat(12_000),
        &"atob(".repeat(12_000),
        &"[].constructor".repeat(7_000),
        &"require('child_process').exec('rm -rf /');".repeat(1_000),
        &"'/".repeat(75_000),
        &"\\u0061".repeat(25_000),
        &"a".repeat(1 << 18),
        &format!("'{}'", "\\x61".repeat(1 << 16)),
        &"é".repeat(1 << 19),
        &";".repeat(1 << 18),
        &"{x=eval}".repeat(7_000),
        &"x = x + x;".repeat(7_000),
        &"const {a:{b:{c:{d:{e".repeat(2_000),
        "const {'proto\": 1}",
        "\\u{110000} '\\u{fffffff}' `\\u`",
    ] {
        let started = crate::processor_time::processor_time();
        check(code, Language::Node);
        check(code, Language::Typescript);
        let took = crate::processor_time::processor_time() - started;
        // Debug builds are about twenty times slower.
        assert!(
            took.as_secs() < 20,
            "{took:?} {:?}",
            code.get(..30.min(code.len()))
        );
        eprintln!("{took:?} {:?}", code.get(..30.min(code.len())));
    }
}
