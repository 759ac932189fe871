//! The public interface, pinned in `tests/api.txt`: one line for each thing that users can name.

use std::path::Path;
use std::{env, fs};

use crate::api::lines::Line;
use crate::library::modules::Library;
use crate::library::{read, sources_of};

mod difference;
mod examples;
mod exports;
mod impls;
mod items;
mod lines;
#[cfg(test)]
mod tests;

const HEADING: &str = "\
# All that users of distlock can name, read from the sources. A change here is a change for them: after an intended one,
#     DISTLOCK_BLESS=1 cargo test -p distlock-tests --test house api
# writes this file anew.
";

/// A line for all that users of the library can name, and for all macros of the crate of its attribute.
fn lines_of(library: &Library, macros: &Library) -> (Vec<Line>, Vec<Line>) {
    let macros = exports::procedural(macros);
    let mut lines = exports::definitions(library, &macros);
    lines.extend(impls::of_exported(library));
    (lines, macros)
}

/// The public interface of the library and of the crate of its attribute.
fn interface(library: &Library, macros: &Library) -> String {
    let (lines, macros) = lines_of(library, macros);
    format!(
        "{HEADING}\n[distlock]\n{}\n[distlock-macros]\n{}",
        sorted(lines),
        sorted(macros)
    )
}

fn sorted(mut lines: Vec<Line>) -> String {
    lines.sort();
    lines.dedup();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_public_interface_is_the_one_in_api_txt() {
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("api.txt");
    let library = Library::read(&sources_of("distlock"));
    let macros = Library::read(&sources_of("distlock-macros"));
    let actual = interface(&library, &macros);
    if env::var_os("DISTLOCK_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&pinned, actual).expect("tests/api.txt can be written");
        return;
    }
    let expected = read(&pinned);
    assert!(
        expected == actual,
        "the public interface is not the one in tests/api.txt (`-` stands there, `+` is in the sources):\n\n{}\n\
         if this change is meant: DISTLOCK_BLESS=1 cargo test -p distlock-tests --test house api, and read the difference",
        difference::between(&expected, &actual)
    );
}
