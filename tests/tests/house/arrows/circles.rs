//! Circles of imports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::arrows::graph::Arrow;

/// The first arrow from each file to each other one.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Arrow>>;

fn graph(arrows: &[Arrow]) -> Graph<'_> {
    let mut graph = Graph::new();
    for arrow in arrows {
        let of_file = graph.entry(&arrow.from).or_default();
        of_file.entry(&arrow.to).or_insert(arrow);
    }
    graph
}

/// Each pair of files that import each other, with all the arrows between them.
pub(crate) fn mutual(arrows: &[Arrow]) -> Vec<String> {
    let graph = graph(arrows);
    let imports = |from: &str, to: &str| {
        graph
            .get(from)
            .is_some_and(|of_file| of_file.contains_key(to))
    };
    let mut pairs = Vec::new();
    for (one, other) in graph
        .iter()
        .flat_map(|(one, others)| others.keys().map(move |other| (*one, *other)))
    {
        if one < other && imports(other, one) {
            let between = arrows.iter().filter(|arrow| {
                (arrow.from == one && arrow.to == other) || (arrow.from == other && arrow.to == one)
            });
            pairs.push(told(&format!("{one} and {other}"), between));
        }
    }
    pairs
}

/// The shortest circle through each file that lies on one.
pub(crate) fn shortest(arrows: &[Arrow]) -> Vec<String> {
    let graph = graph(arrows);
    let mut seen = BTreeSet::new();
    let mut circles: Vec<Vec<&Arrow>> = graph
        .keys()
        .filter_map(|file| circle(&graph, file))
        // The same circle is found from each of its files.
        .filter(|circle| {
            seen.insert(
                circle
                    .iter()
                    .map(|arrow| &arrow.from)
                    .collect::<BTreeSet<_>>(),
            )
        })
        .collect();
    circles.sort_by_key(Vec::len);
    circles
        .iter()
        .map(|circle| {
            told(
                &format!("a circle of {} files", circle.len()),
                circle.iter().copied(),
            )
        })
        .collect()
}

/// The shortest way from a file back to it.
fn circle<'a>(graph: &Graph<'a>, start: &str) -> Option<Vec<&'a Arrow>> {
    let mut came_by: BTreeMap<&str, &Arrow> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(file) = next.pop_front() {
        for (to, arrow) in graph.get(file).into_iter().flatten() {
            if came_by.contains_key(to) {
                continue;
            }
            came_by.insert(to, arrow);
            if *to == start {
                return Some(way_back(&came_by, start));
            }
            next.push_back(to);
        }
    }
    None
}

fn way_back<'a>(came_by: &BTreeMap<&str, &'a Arrow>, start: &str) -> Vec<&'a Arrow> {
    let mut way = vec![came_by[start]];
    while way[way.len() - 1].from != start {
        way.push(came_by[way[way.len() - 1].from.as_str()]);
    }
    way.reverse();
    way
}

fn told<'a>(heading: &str, arrows: impl Iterator<Item = &'a Arrow>) -> String {
    let lines: Vec<_> = arrows.map(|arrow| format!("    {arrow}")).collect();
    format!("{heading}:\n{}", lines.join("\n"))
}
