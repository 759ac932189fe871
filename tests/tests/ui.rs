//! Compile-fail cases of the attribute: each mistake gets exactly one error that says what to write.
//! What compiles is in `tests/attribute`; only code that the workspace forbids is in `ui_pass`.

use std::fs;
use std::path::{Path, PathBuf};

/// All cases, `ui/<theme>/<mistake>.rs`.
fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let mut cases = Vec::new();
    for theme in fs::read_dir(&root).expect("tests/ui exists") {
        let theme = theme.expect("a readable folder").path();
        for case in fs::read_dir(&theme).expect("a folder of cases") {
            let case = case.expect("a readable file").path();
            if case.extension().is_some_and(|extension| extension == "rs") {
                cases.push(case);
            }
        }
    }
    cases.sort();
    cases
}

#[test]
fn every_mistake_gets_its_own_error() {
    let cases = cases();
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    for case in cases {
        let source = fs::read_to_string(&case).expect("a readable case");
        let name = case.display();
        let expected: usize = source
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("// mistakes: "))
            .unwrap_or_else(|| panic!("{name} does not start with `// mistakes: n`"))
            .parse()
            .unwrap_or_else(|_| panic!("{name}: `// mistakes: n` needs a number"));
        let answer = fs::read_to_string(case.with_extension("stderr"))
            .unwrap_or_else(|error| panic!("{name} has no .stderr ({error})"));
        let errors = answer
            .lines()
            .filter(|line| line.starts_with("error:") || line.starts_with("error["))
            .count();
        assert_eq!(
            errors, expected,
            "{name}: errors for {expected} mistakes:\n{answer}"
        );
        for word in ["__private", "$RUST", "/registry/"] {
            assert!(!answer.contains(word), "{name} shows `{word}`:\n{answer}");
        }
    }
}

#[test]
fn the_compiler_answers_as_pinned() {
    let tests = trybuild::TestCases::new();
    tests.compile_fail("ui/*/*.rs");
    tests.pass("ui_pass/*.rs");
}
