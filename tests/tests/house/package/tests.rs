//! Small packages with one thing too much, or too little.

use crate::library::made_up;
use crate::package::{SABOTAGED, members, missing, words};

/// What is wrong with the one file of a package.
fn conditional(code: &str) -> Vec<String> {
    members::conditional(&made_up(&[("a.rs", code)]))
}

#[test]
fn a_missing_file_is_told() {
    let all = [
        "Cargo.toml",
        "README.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "src/lib.rs",
        "lua/ask.lua",
    ];
    let all: Vec<_> = all.iter().map(|file| (*file).to_owned()).collect();
    let scripts = ["ask.lua".to_owned(), "next.lua".to_owned()];
    assert_eq!(missing(&all, &scripts), ["lua/next.lua"]);
    assert_eq!(missing(&all[1..], &scripts[..1]), ["Cargo.toml"]);
}

#[test]
fn a_file_of_proof_is_told_by_its_name() {
    let files = [
        "src/simulation/mod.rs",
        "src/key.rs",
        "src/key/properties.rs",
        "src/Faulty.rs",
        "src/sabotage.rs",
    ];
    let files: Vec<_> = files.iter().map(|file| (*file).to_owned()).collect();
    assert_eq!(
        words::in_paths(&files),
        [
            "src/simulation/mod.rs: its name has `simulation` in it",
            "src/key/properties.rs: its name has `properties` in it",
            "src/Faulty.rs: its name has `faulty` in it",
            "src/sabotage.rs: its name has `sabot` in it",
        ]
    );
}

#[test]
fn names_of_proof_are_told_and_prose_is_not() {
    let code = "
        //! Proven by a simulation, see the oracle.
        /// No garbage is believed.
        fn f() { tell(\"garbage\"); } // nemesis
        fn read_garbage() {}
        struct FaultyLink;
        mod properties { }
        #[cfg(test)] mod tests { fn the_oracle() {} }
        #[cfg(test)] #[path = \"../../tests/inside/garbage.rs\"] mod garbage;
        #[cfg(test)] #[path = \"garbage.rs\"] mod garbage;
        macro_rules! m { () => { nemesis::rise() } }
    ";
    assert_eq!(
        words::in_code(&made_up(&[("a.rs", code)])),
        [
            "a.rs:5 `read_garbage` has `garbage` in it",
            "a.rs:6 `FaultyLink` has `faulty` in it",
            "a.rs:7 `properties` has `properties` in it",
            "a.rs:8 `the_oracle` has `oracle` in it",
            "a.rs:10 `garbage` has `garbage` in it",
            "a.rs:11 `nemesis` has `nemesis` in it",
        ]
    );
}

#[test]
fn saboteurs_are_known_in_one_file() {
    let rules = (
        SABOTAGED,
        "#[cfg(sabotage)] static BROKEN: OnceLock<Rules> = OnceLock::new();",
    );
    let door = "#[cfg(sabotage)] #[path = \"../../tests/sabotage/mod.rs\"] mod sabotage;\n";
    let clean = [
        rules,
        ("lib.rs", door),
        ("a.rs", "//! Saboteurs break it.\nfn f() {}"),
    ];
    assert_eq!(words::of_saboteurs(&made_up(&clean)), Vec::<String>::new());
    let code = "fn f() {\n#[cfg(sabotage)]\nlet x = crate::sabotage::now();\nvar(\"DISTLOCK_SABOTAGE\") }\n\
                #[cfg(sabotage)] mod sabotage;";
    assert_eq!(
        words::of_saboteurs(&made_up(&[rules, ("a.rs", code)])),
        [
            "a.rs:2 names sabotage",
            "a.rs:3 names sabotage",
            "a.rs:4 names \"DISTLOCK_SABOTAGE\"",
            "a.rs:5 names sabotage",
        ]
    );
    assert_eq!(
        words::of_saboteurs(&made_up(&[(SABOTAGED, "pub struct Rules;")])),
        ["protocol/rules.rs does not name `sabotage`: no saboteur could break a rule"]
    );
}

#[test]
fn a_part_of_a_product_type_that_only_tests_have_is_told() {
    for (code, expected) in [
        (
            "struct S { #[cfg(test)] seen: u8 }",
            "#[cfg(test)] on a field",
        ),
        (
            "struct S(#[cfg(sabotage)] u8);",
            "#[cfg(sabotage)] on a field",
        ),
        ("enum E { #[cfg(test)] A, B }", "#[cfg(test)] on a variant"),
        (
            "enum E { A { #[cfg(test)] seen: u8 } }",
            "#[cfg(test)] on a field",
        ),
        (
            "impl S { #[cfg(test)] fn seen(&self) {} }",
            "#[cfg(test)] on a method",
        ),
        (
            "impl T for S { #[cfg(not(test))] fn seen(&self) {} }",
            "#[cfg(not(test))] on a method",
        ),
        (
            "trait T { #[cfg(sabotage)] fn seen(&self); }",
            "#[cfg(sabotage)] on a method",
        ),
        (
            "fn f() { #[cfg(sabotage)] let x = 1; }",
            "#[cfg(sabotage)] on a part of a function",
        ),
        (
            "fn f() { S { #[cfg(test)] seen: 1 } }",
            "#[cfg(test)] on a field",
        ),
        (
            "fn f() { match x { #[cfg(test)] 1 => 2, _ => 3 } }",
            "#[cfg(test)] on a part of a function",
        ),
        (
            "fn f() { if cfg!(test) {} }",
            "cfg!(test) on a part of a function",
        ),
        ("#[cfg(test)] struct S;", "#[cfg(test)] on an item"),
        (
            "#[cfg(test)] impl Clone for S {}",
            "#[cfg(test)] on an item",
        ),
        (
            "#[cfg_attr(test, derive(Clone))] struct S;",
            "#[cfg_attr(test,derive(Clone))] on an item",
        ),
        (
            "#[cfg(all(unix, distlock_inside))] fn f() {}",
            "#[cfg(all(unix,distlock_inside))] on an item",
        ),
        ("#[cfg(sabotage)] use x::Y;", "#[cfg(sabotage)] on a `use`"),
        (
            "mod inner { struct S { #[cfg(test)] seen: u8 } }",
            "#[cfg(test)] on a field",
        ),
    ] {
        assert_eq!(conditional(code), [format!("a.rs:1 {expected}")], "{code}");
    }
}

#[test]
fn whole_modules_and_imports_may_be_for_tests() {
    for code in [
        "#[cfg(test)] mod tests { struct S { #[cfg(test)] seen: u8 } }",
        "#[cfg(test)] #[cfg(distlock_inside)] #[path = \"../../tests/x.rs\"] mod x;",
        "#[cfg(any(sabotage, test))] #[path = \"../../tests/x.rs\"] #[cfg_attr(not(sabotage), allow(dead_code))] mod x;",
        "#[cfg(test)] use x::Y;",
        "struct S { #[cfg(unix)] seen: u8 } #[cfg(feature = \"test\")] fn f() {}",
        "#![cfg(test)] struct S { #[cfg(test)] seen: u8 }",
    ] {
        assert_eq!(conditional(code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn the_rules_may_be_broken_by_whole_items_and_statements() {
    let of_rules = |code: &str| members::conditional(&made_up(&[(SABOTAGED, code)])).len();
    for code in [
        "#[cfg(sabotage)] static BROKEN: u8 = 1;",
        "#[cfg(sabotage)] use std::env;",
        "fn f() { #[cfg(sabotage)] return 1; }",
        "impl Rules { fn f() -> u8 { #[cfg(sabotage)] { 1 } #[cfg(not(sabotage))] { 2 } } }",
    ] {
        assert_eq!(of_rules(code), 0, "{code}");
    }
    for code in [
        "struct Rules { #[cfg(sabotage)] broken: u8 }",
        "impl Rules { #[cfg(sabotage)] fn broken() {} }",
        "#[cfg(test)] static BROKEN: u8 = 1;",
    ] {
        assert_eq!(of_rules(code), 1, "{code}");
    }
}
