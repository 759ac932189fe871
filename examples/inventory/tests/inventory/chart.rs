//! What `--chart` draws, held against the table of the same run.

use std::fs;
use std::path::Path;

use distlock_tests::RedisServer;
use roxmltree::{Document, Node};

use crate::running::{Running, inventory, output, row};

/// About how wide a character is, in the widest of the usual fonts and the font's size.
const EM: f64 = 0.6;

/// What is rounded in the picture.
const ROUNDED: f64 = 0.02;

/// A chart that was read again.
pub(crate) struct Chart(String);

/// What one of the two runs shows.
#[derive(Debug)]
struct Drawn {
    heading: String,
    /// Begin, end, and whether its update is lost.
    bars: Vec<(f64, f64, bool)>,
    /// What was read and written; nothing where nothing was written.
    changes: Vec<Option<(u64, u64)>>,
    /// Marked as several at the same time, among the first calls and in the whole run.
    several: [usize; 2],
    /// The orders and the lost updates of each item.
    items: Vec<(u64, u64)>,
}

impl Chart {
    #[track_caller]
    pub(crate) fn read(file: &Path) -> Chart {
        let svg = fs::read_to_string(file).unwrap();
        assert!(svg.len() < 300_000, "{} bytes", svg.len());
        let chart = Chart(svg);
        chart.assert_fits();
        chart
    }

    #[track_caller]
    fn xml(&self) -> Document<'_> {
        Document::parse(&self.0).unwrap()
    }

    /// Everything is inside the picture.
    #[track_caller]
    fn assert_fits(&self) {
        let xml = self.xml();
        let all = || xml.descendants();
        let [width, height] = ["width", "height"].map(|name| number(xml.root_element(), name));
        let style = all().find(|node| node.has_tag_name("style")).unwrap();
        let style = style.text().unwrap();
        assert!(style.contains("prefers-color-scheme:dark"), "{style}");
        assert!(!self.0.contains("http://") || self.0.matches("http://").count() == 1);
        assert!(!self.0.contains("NaN") && !self.0.contains("inf"));
        for text in all().filter(|node| node.has_tag_name("text")) {
            let size = match class(text).first() {
                Some(&"title") => 19.0,
                Some(&"head") => 14.0,
                _ => 12.0,
            };
            let what = text.text().unwrap();
            let length = what.chars().count() as f64 * size * EM;
            let x = number(text, "x");
            let left = match text.attribute("text-anchor") {
                None => x,
                Some("middle") => x - length / 2.0,
                Some(_) => x - length,
            };
            assert!(left >= 0.0 && left + length <= width, "{what}: {left}");
            let y = number(text, "y");
            assert!(y > size && y + size / 3.0 < height, "{what}: {y}");
        }
        for rect in all().filter(|node| node.has_tag_name("rect") && node.has_attribute("x")) {
            let [x, y, wide, high] = ["x", "y", "width", "height"].map(|name| number(rect, name));
            assert!(x >= 0.0 && x + wide <= width, "{rect:?}");
            assert!(wide >= 0.0 && y >= 0.0 && y + high <= height, "{rect:?}");
        }
    }

    #[track_caller]
    fn run(&self, title: &str) -> Drawn {
        let xml = self.xml();
        let group = |part: &str| {
            let name = format!("{title}, {part}");
            let is_it = |node: &Node<'_, '_>| node.attribute("id") == Some(&name);
            xml.descendants()
                .find(is_it)
                .unwrap_or_else(|| panic!("no {name}"))
        };
        let of_class = |node: Node<'_, '_>, name: &str| {
            let all = node.descendants();
            all.filter(|node| class(*node).contains(&name)).count()
        };
        let [first, whole] = [group("first calls"), group("whole run")];
        let rows = first.children().filter(|node| node.has_tag_name("g"));
        let bar = |row: Node<'_, '_>| {
            let mut bars = row.children().filter(|node| class(*node).contains(&"held"));
            let bar = bars.next().unwrap();
            let x = number(bar, "x");
            (x, x + number(bar, "width"), class(bar).contains(&"lost"))
        };
        let change = |row: Node<'_, '_>| {
            let text = last_text(row);
            let (read, wrote) = text.split_once(" → ")?;
            let wrote = wrote.trim_end_matches(" lost");
            Some((read.parse().unwrap(), wrote.parse().unwrap()))
        };
        for row in rows.clone() {
            assert_eq!(
                bar(row).2,
                last_text(row).ends_with(" lost"),
                "{}",
                last_text(row)
            );
        }
        let lanes = texts(whole).into_iter();
        let lanes = lanes.filter_map(|text| {
            let (orders, rest) = text.split_once(" order")?;
            let rest = rest.strip_prefix('s').unwrap_or(rest);
            let lost = rest
                .strip_prefix(", ")
                .and_then(|rest| rest.strip_suffix(" lost"));
            Some((
                orders.parse().ok()?,
                lost.map_or(0, |lost| lost.parse().unwrap()),
            ))
        });
        Drawn {
            heading: texts(first)[1].into(),
            bars: rows.clone().map(bar).collect(),
            changes: rows.map(change).collect(),
            several: [of_class(first, "many"), of_class(whole, "several")],
            items: lanes.collect(),
        }
    }

    /// The picture says of the two runs what the table says.
    #[track_caller]
    pub(crate) fn assert_agrees(&self, table: &str) {
        let without = self.run("without lock");
        let lost = row(table, "lost updates");
        let drawn = without.bars.iter().filter(|(_, _, lost)| *lost).count();
        if without.overlaps() {
            assert!(
                without.several.iter().all(|marks| *marks > 0),
                "{without:?}"
            );
        }
        if drawn > 0 {
            // Who overwrote it may not be among the first.
            assert!(without.several[1] > 0 && lost[0] > 0, "{without:?}");
            let said = format!("{drawn} of these");
            assert!(without.heading.contains(&said), "{without:?}");
        }
        self.assert_locked(table);
        let with = self.run("with lock");
        assert_eq!(without.bars.len(), with.bars.len());
        let orders = |drawn: &Drawn| {
            drawn
                .items
                .iter()
                .map(|(orders, _)| *orders)
                .collect::<Vec<_>>()
        };
        assert_eq!(orders(&without), orders(&with));
    }

    /// Of the locked run alone.
    #[track_caller]
    pub(crate) fn assert_locked(&self, table: &str) {
        assert_eq!(row(table, "lost updates").last(), Some(&0), "{table}");
        let with = self.run("with lock");
        assert!(!with.bars.is_empty());
        assert!(!with.overlaps(), "{with:?}");
        assert_eq!(with.several, [0, 0], "{with:?}");
        assert!(with.heading.contains("one call at a time"), "{with:?}");
        assert!(with.bars.iter().all(|(_, _, lost)| !lost), "{with:?}");
        assert!(with.items.iter().all(|(_, lost)| *lost == 0), "{with:?}");
        let changes: Vec<_> = with.changes.iter().flatten().collect();
        for pair in changes.windows(2) {
            assert_eq!(
                pair[0].1, pair[1].0,
                "each reads what the last wrote: {with:?}"
            );
        }
    }
}

impl Drawn {
    fn overlaps(&self) -> bool {
        let mut bars: Vec<_> = self
            .bars
            .iter()
            .map(|(from, until, _)| (*from, *until))
            .collect();
        bars.sort_by(|a, b| a.partial_cmp(b).unwrap());
        bars.windows(2).any(|pair| pair[1].0 + ROUNDED < pair[0].1)
    }
}

/// The words right in a group, in the order in which they were drawn.
fn texts<'a>(group: Node<'a, '_>) -> Vec<&'a str> {
    let texts = group.children().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|text| text.text()).collect()
}

fn last_text<'a>(row: Node<'a, '_>) -> &'a str {
    texts(row).last().copied().unwrap_or_default()
}

fn class<'a>(node: Node<'a, '_>) -> Vec<&'a str> {
    let classes = node.attribute("class").unwrap_or_default();
    classes.split_whitespace().collect()
}

#[track_caller]
fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// A shop of three items, all of which are drawn; its orders are many more than the workers have in hand.
fn shop(folder: &Path) {
    let made = inventory("memory:", "generate --orders 300 --items 3 --out")
        .arg(folder)
        .output();
    assert!(made.unwrap().status.success());
}

#[track_caller]
fn assert_all_is_drawn(store: &str, arguments: &str) {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let file = folder.path().join("chart.svg");
    let arguments = format!(
        "{arguments} --data {} --chart {}",
        folder.path().display(),
        file.display()
    );
    let (code, table, errors) = output(store, &arguments);
    assert_eq!(code, Some(0), "{errors}");
    let chart = Chart::read(&file);
    chart.assert_agrees(&table);

    for (place, title) in ["without lock", "with lock"].into_iter().enumerate() {
        let drawn = chart.run(title);
        let sum = |number: fn(&(u64, u64)) -> u64| drawn.items.iter().map(number).sum::<u64>();
        assert_eq!(sum(|(orders, _)| *orders), 300, "{drawn:?}");
        assert_eq!(
            sum(|(_, lost)| *lost),
            row(&table, "lost updates")[place],
            "{drawn:?}"
        );
        assert_eq!(drawn.bars.len(), 12);
    }
    let without = chart.run("without lock");
    assert!(row(&table, "lost updates")[0] > 0, "{table}");
    assert!(without.overlaps() && without.several[1] > 0, "{without:?}");
}

#[test]
fn instances_are_drawn_as_the_table_says() {
    assert_all_is_drawn("memory:", "");
}

#[test]
fn processes_are_drawn_as_the_table_says() {
    let server = RedisServer::start();
    assert_all_is_drawn(&server.url(), "--processes 4");
}

#[test]
fn a_process_that_was_killed_leaves_a_gap_and_no_overlap() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chart.svg");
    let arguments = format!(
        "--only locked --kill-one --orders 1000 --chart {}",
        file.display()
    );
    let (code, table, errors) = output(&server.url(), &arguments);
    assert_eq!(code, Some(0), "{errors}");
    let chart = Chart::read(&file);
    chart.assert_locked(&table);
    assert!(chart.0.contains(" died, others had its items"), "{table}");
    assert!(!chart.0.contains("without lock"));
}

#[test]
fn numbers_of_any_length_stay_in_the_picture() {
    let folder = tempfile::tempdir().unwrap();
    let mut orders = String::from("order_id,item_id,quantity\n");
    for id in 0..100 {
        orders += &format!("{},4294967295,1000\n", u64::MAX - id);
    }
    fs::write(folder.path().join("orders.csv"), orders).unwrap();
    let stock = "item_id,quantity\n4294967295,4294967295\n";
    fs::write(folder.path().join("stock.csv"), stock).unwrap();
    let file = folder.path().join("chart.svg");
    let data = folder.path().display();
    let arguments = format!("--instances 20 --data {data} --chart {}", file.display());
    let (code, table, _) = output("memory:", &arguments);
    assert_eq!(code, Some(0));
    Chart::read(&file).assert_agrees(&table);
    // Alone, the bars without the lock reach as far to the right as there is room.
    let (code, _, _) = output("memory:", &format!("{arguments} --only unlocked"));
    assert_eq!(code, Some(0));
    let drawn = Chart::read(&file).run("without lock");
    assert!(drawn.bars.iter().any(|(.., lost)| *lost), "{drawn:?}");
}

#[test]
fn the_picture_of_the_documents_is_a_chart_of_both_runs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/inventory.svg");
    assert!(fs::metadata(&file).unwrap().len() < 150_000);
    let chart = Chart::read(&file);
    assert!(chart.run("without lock").overlaps());
    assert!(!chart.run("with lock").overlaps());
}

#[test]
fn a_chart_that_cannot_be_written_is_noticed_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere/chart.svg");
    for file in [missing.as_path(), folder.path()] {
        let (code, table, errors) = output("memory:", &format!("--chart {}", file.display()));
        assert_eq!((code, table.as_str()), (Some(2), ""));
        let expected = format!("error: cannot write the chart to {}: ", file.display());
        assert!(errors.starts_with(&expected), "{errors}");
        assert!(!errors.contains("orders"), "{errors}");
    }
}

#[test]
fn a_run_that_fails_leaves_the_file_as_it_was() {
    let server = RedisServer::start();
    server.kill();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chart.svg");
    let arguments = format!("--chart {}", file.display());
    assert_eq!(output(&server.url(), &arguments).0, Some(2));
    assert!(!file.exists());
    let target = folder.path().join("target.svg");
    std::os::unix::fs::symlink(&target, &file).unwrap();
    assert_eq!(output(&server.url(), &arguments).0, Some(2));
    assert_eq!(fs::read_link(&file).unwrap(), target);
    assert!(!target.exists());
    fs::remove_file(&file).unwrap();
    fs::write(&file, "of yesterday").unwrap();
    assert_eq!(output(&server.url(), &arguments).0, Some(2));
    assert_eq!(fs::read_to_string(&file).unwrap(), "of yesterday");
}

/// The commands in what a run says at its end.
fn advised(errors: &str) -> Vec<String> {
    let lines = errors.lines().map(str::trim);
    let commands = lines.filter_map(|line| line.strip_prefix("cargo run -- "));
    commands.map(str::to_owned).collect()
}

#[test]
fn the_commands_at_the_end_lead_from_memory_to_processes_and_a_killed_one() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inventory.svg");
    let run = |arguments: &str| {
        let arguments = arguments.replace("redis://127.0.0.1:6379", &server.url());
        let mut command = inventory("memory:", &arguments);
        let (code, table, errors) = Running::of(command.current_dir(&folder)).end();
        assert_eq!(code, Some(0), "{errors}");
        if arguments.contains("--chart inventory.svg") {
            Chart::read(&file).assert_agrees(&table);
            fs::remove_file(&file).unwrap();
        }
        advised(&errors)
    };
    let from_memory = run("--orders 600");
    let [picture, processes] = &from_memory[..] else {
        panic!("{from_memory:?}");
    };
    assert_eq!(run(picture), std::slice::from_ref(processes));
    let from_processes = run(processes);
    let [killed] = &from_processes[..] else {
        panic!("{from_processes:?}");
    };
    assert!(killed.contains("--kill-one"), "{killed}");
    assert!(run(killed).is_empty());
}
