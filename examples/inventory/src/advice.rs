//! What to look at next, with the command for it. Nothing that was done just now.

use std::path::Path;

use crate::cli::{Only, RunOptions};
use crate::run::Place;

const REDIS: &str = "redis://127.0.0.1:6379";
const CHART: &str = "inventory.svg";

/// A sentence, and a command of which it speaks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) what: &'static str,
    pub(crate) command: String,
}

/// After this run. `in_environment` is the store that the next run finds there.
pub(crate) fn next(
    options: &RunOptions,
    place: &Place,
    in_environment: Option<&str>,
) -> Vec<Advice> {
    let mut advice = Vec::new();
    match place {
        Place::Here { instances, .. } => {
            if options.chart.is_none() {
                let arguments = [same(options), of_this_run(options), chart(options)].concat();
                advice.push(run("See it as a picture:", &arguments));
            }
            let mut arguments = words(["--store", REDIS]);
            arguments.extend(words(["--processes", &instances.to_string()]));
            arguments.extend([same(options), chart(options)].concat());
            let what = "The same with processes and Redis (start `redis-server` first):";
            advice.push(run(what, &arguments));
        }
        Place::Processes { store, processes } => {
            let what = if !options.kill_one {
                "See what happens when a process is killed while it holds a lock:"
            } else if options.chart.is_none() {
                "See it as a picture:"
            } else {
                return advice;
            };
            let more = [words(["--kill-one"]), chart(options)].concat();
            let is_known = in_environment == Some(&store.url);
            if store.url.contains('@') && !is_known {
                // Who has typed a password has it in the history; it does not belong on the screen.
                let command = format!("{} (added to the same command)", joined(&more));
                advice.push(Advice { what, command });
                return advice;
            }
            let mut arguments = Vec::new();
            if !is_known {
                arguments.extend(words(["--store", &store.url]));
            }
            if *processes > 1 {
                arguments.extend(words(["--processes", &processes.to_string()]));
            }
            if store.min_replicas > 0 {
                arguments.extend(words(["--min-replicas", &store.min_replicas.to_string()]));
            }
            arguments.extend([same(options), more].concat());
            advice.push(run(what, &arguments));
        }
    }
    advice
}

fn run(what: &'static str, arguments: &[String]) -> Advice {
    let command = format!("cargo run -- {}", joined(arguments));
    Advice { what, command }
}

/// The options that mean the same wherever the services run.
fn same(options: &RunOptions) -> Vec<String> {
    let mut arguments = Vec::new();
    if options.tasks != RunOptions::TASKS {
        arguments.extend(words(["--tasks", &options.tasks.to_string()]));
    }
    if let Some(orders) = options.orders {
        arguments.extend(words(["--orders", &orders.to_string()]));
    }
    if let Some(folder) = &options.data {
        arguments.extend(words(["--data", &path(folder)]));
    }
    arguments
}

/// Those that mean nothing with processes, or would leave out a run worth seeing.
fn of_this_run(options: &RunOptions) -> Vec<String> {
    let mut arguments = Vec::new();
    if let Some(instances) = options.instances {
        arguments.extend(words(["--instances", &instances.to_string()]));
    }
    if let Some(only) = options.only {
        let name = match only {
            Only::Locked => "locked",
            Only::Unlocked => "unlocked",
        };
        arguments.extend(words(["--only", name]));
    }
    arguments
}

fn chart(options: &RunOptions) -> Vec<String> {
    let file = options.chart.as_deref().map_or(CHART.into(), path);
    words(["--chart", &file])
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// As a shell reads them.
fn joined(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    let quoted = words.iter().map(|word| match word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::run::place;
    use clap::Parser as _;

    fn after(arguments: &str, in_environment: Option<&str>) -> Vec<String> {
        let words = ["inventory"].into_iter().chain(arguments.split(' '));
        let options = Cli::try_parse_from(words).unwrap().run;
        let place = place(&options).unwrap();
        let advice = next(&options, &place, in_environment);
        advice.into_iter().map(|advice| advice.command).collect()
    }

    #[test]
    fn what_is_advised_is_what_was_not_done() {
        let cases: [(&str, &[&str]); 7] = [
            (
                "--store memory:",
                &[
                    "--chart inventory.svg",
                    "--store redis://127.0.0.1:6379 --processes 4 --chart inventory.svg",
                ],
            ),
            (
                "--store memory: --only locked --orders 9",
                &[
                    "--orders 9 --only locked --chart inventory.svg",
                    "--store redis://127.0.0.1:6379 --processes 4 --orders 9 --chart inventory.svg",
                ],
            ),
            (
                "--store memory: --instances 2 --tasks 3 --chart a.svg",
                &["--store redis://127.0.0.1:6379 --processes 2 --tasks 3 --chart a.svg"],
            ),
            (
                "--store redis://h --processes 3",
                &["--store redis://h --processes 3 --kill-one --chart inventory.svg"],
            ),
            (
                "--store redis://h --processes 1 --min-replicas 1 --only unlocked",
                &["--store redis://h --min-replicas 1 --kill-one --chart inventory.svg"],
            ),
            (
                "--store redis://h --kill-one",
                &["--store redis://h --processes 4 --kill-one --chart inventory.svg"],
            ),
            ("--store redis://h --kill-one --chart a.svg", &[]),
        ];
        for (arguments, expected) in cases {
            let advice = after(arguments, None);
            let expected = expected.iter().map(|rest| format!("cargo run -- {rest}"));
            assert_eq!(advice, expected.collect::<Vec<_>>(), "{arguments}");
            for command in advice {
                let words = command.replace("cargo run --", "inventory");
                let options = Cli::try_parse_from(words.split(' ')).unwrap().run;
                place(&options).unwrap();
            }
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        let url = "redis://:hunter2@h";
        let typed = after(&format!("--store {url}"), None);
        assert_eq!(
            typed,
            ["--kill-one --chart inventory.svg (added to the same command)"]
        );
        let known = after(&format!("--store {url}"), Some(url));
        assert_eq!(
            known,
            ["cargo run -- --processes 4 --kill-one --chart inventory.svg"]
        );
    }

    #[test]
    fn a_shell_reads_what_was_meant() {
        let words = words(["--data", "my shop", "it's", "redis+cluster://[::1]:7,h"]);
        let expected = r"--data 'my shop' 'it'\''s' 'redis+cluster://[::1]:7,h'";
        assert_eq!(joined(&words), expected);
    }
}
