//! The program's messages about itself, and its documentation.

use std::path::Path;

use distlock_tests::RedisServer;

use crate::support::{
    bare, code, distlock, json, manager, output, page, refused, shell, text, user_without,
};

#[test]
fn a_wrong_command_line_is_json_as_well() {
    for (line, part) in [
        (
            "--json list --prefixx",
            "unexpected argument '--prefixx' found",
        ),
        ("unlock --json", "<KEY>"),
        ("run k --json", "<COMMAND>"),
        ("--json run -- ls", "missing key"),
        ("inspect k --connect-timeout 15 --json", "write 500ms"),
        ("--json", "subcommand"),
    ] {
        let (ended, stderr) = code(&mut bare(line));
        let error = json(&stderr)["error"].clone();
        assert_eq!((ended, &error["code"]), (2, &2.into()), "{line}");
        assert_eq!(error["kind"], "usage");
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains(part) && !message.contains("Usage:"),
            "{message}"
        );
    }
    // A `--json` that belongs to the command, and a help page.
    let (_, stderr) = code(&mut bare("run --nonsense k -- ls --json"));
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert!(page(&mut bare("--json run --help")).contains("Usage:"));
}

/// A key that looks like an option, with characters that reorder the text behind them.
#[test]
fn keys_are_shown_without_what_reorders_text_and_may_begin_with_a_dash() {
    let server = RedisServer::start();
    let key = "-pay\u{202e}tnuocca\u{2066}";
    let shown = "-pay?tnuocca?";
    let script = "printf %s \"$DISTLOCK_KEY\"";
    let run = format!("run -- {key}");
    let ran = output(&mut shell(&server.url(), &run, script));
    assert_eq!(
        (text(&ran.stdout).as_str(), ran.status.code()),
        (key, Some(0)),
        "{ran:?}"
    );

    // The command runs until its lock is revoked, so the loss is always reported.
    let held = format!(
        "\"$0\" inspect -- '{key}'; \"$0\" list; \"$0\" unlock --wait 0 -- '{key}'; exec sleep 60"
    );
    let program = env!("CARGO_BIN_EXE_distlock");
    let ran = output(shell(&server.url(), &run, &held).arg(program));
    let (stdout, stderr) = (text(&ran.stdout), text(&ran.stderr));
    assert!(stdout.matches(shown).count() >= 2, "{ran:?}");
    assert!(stderr.contains(shown), "{ran:?}");
    for output in [stdout, stderr] {
        assert!(!output.contains(['\u{202e}', '\u{2066}']), "{output:?}");
    }
}

/// Two blanks make an empty word.
#[test]
fn empty_values_are_a_wrong_command_line() {
    for line in [
        "unlock --holder  k",
        "unlock ",
        "inspect ",
        "forget ",
        "forget --once-for  k",
        "run --once-for  k -- true",
        "run  -- true",
    ] {
        // Before anything is sent: there is no store.
        let (ended, stderr) = code(&mut bare(&format!("--json {line}")));
        let error = json(&stderr)["error"].clone();
        assert_eq!(
            (ended, &error["kind"]),
            (2, &"usage".into()),
            "{line}: {stderr}"
        );
    }
}

/// The table of `--help`, the package's README and the manual agree.
#[test]
fn exit_codes_are_documented() {
    let help = page(&mut bare("--help"));
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).expect("a document");
    let readme = read(&package.join("README.md"));
    let manual = read(&package.join("../docs/operations/command-line.md"));
    for (code, word) in [
        ("0", "success"),
        ("1", "error"),
        ("2", "command line"),
        ("116", "busy"),
        ("117", "unavailable"),
        ("118", "lost"),
        ("119", "misconfigured"),
        ("126", "executed"),
        ("127", "does not exist"),
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

/// As the table of exit codes says: a retry would not help.
#[tokio::test]
async fn no_missing_permission_is_an_outage() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let _held = locks.lock("held").acquire().await.expect("a free lock");
    let _shared = locks.semaphore("shared", 2).acquire().await;
    for (permission, line) in [
        ("scan", "list"),
        ("scan", "watch --plain"),
        ("evalsha", "inspect held"),
        ("get", "inspect held"),
        ("hgetall", "inspect shared"),
        ("hgetall", "unlock --wait 0 shared"),
        ("get", "forget free"),
        ("hset", "run --wait 0 --permits 2 free -- false"),
    ] {
        let url = user_without(&server, &format!("-{permission}"));
        refused(&mut distlock(&url, line), 119, &["permi"]);
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
        "forget",
        "watch",
        "doctor",
        "install",
        "completions",
    ] {
        assert!(manual.contains(&format!("distlock {command}")), "{command}");
        let help = page(&mut bare(&format!("{command} --help")));
        let words = help.split(|char: char| !(char.is_alphanumeric() || char == '-'));
        for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
            assert!(
                manual.contains(option),
                "{option} of {command} is not in the manual"
            );
        }
    }
}
