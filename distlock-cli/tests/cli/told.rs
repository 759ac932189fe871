//! What the program says about itself, and what is written about it.

use std::path::Path;

use crate::kit::{bare, output, page, text};

#[test]
fn every_shell_gets_completions() {
    for (shell, part) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef distlock"),
        ("fish", "complete -c distlock"),
    ] {
        let ended = output(&mut bare(&["completions", shell]));
        let script = text(&ended.stdout);
        assert!(ended.status.success(), "{ended:?}");
        for part in [part, "inspect", "holder-is-gone", "on-lost"] {
            assert!(script.contains(part), "{part} is not in that of {shell}");
        }
    }
}

/// The table of `--help`, the package's README and the page say the same.
#[test]
fn exit_codes_are_documented() {
    let help = page(&mut bare(&["--help"]));
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).expect("a document");
    let readme = read(&package.join("README.md"));
    let manual = read(&package.join("../docs/operations/command-line.md"));
    for (code, word) in [
        ("0", "done"),
        ("1", "bad"),
        ("2", "command line"),
        ("116", "busy"),
        ("117", "unavailable"),
        ("118", "lost"),
        ("119", "misconfigured"),
        ("126", "executed"),
        ("127", "no such command"),
    ] {
        let is_row = |line: &str, beginning: &str| {
            line.trim_start()
                .strip_prefix(beginning)
                .is_some_and(|rest| rest.starts_with([' ', '`']) && rest.contains(word))
        };
        assert!(
            help.lines().any(|line| is_row(line, code)),
            "{code} is not in the help"
        );
        for document in [&readme, &manual] {
            let row = format!("| `{code}");
            assert!(
                document.lines().any(|line| is_row(line, &row)),
                "{code} is not in a document"
            );
        }
    }
}

#[test]
fn the_manual_names_every_command_and_option() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = package.join("../docs/operations/command-line.md");
    let manual = std::fs::read_to_string(manual).expect("a document");
    for command in [
        "run",
        "list",
        "inspect",
        "unlock",
        "watch",
        "doctor",
        "completions",
    ] {
        assert!(manual.contains(&format!("distlock {command}")), "{command}");
        let help = page(&mut bare(&[command, "--help"]));
        let words = help.split(|char: char| !(char.is_alphanumeric() || char == '-'));
        for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
            assert!(
                manual.contains(option),
                "{option} of {command} is not in the manual"
            );
        }
    }
}
