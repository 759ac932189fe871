//! What a query of Prometheus asks for.

/// A metric, and the labels by which a query chooses or groups its series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) labels: Vec<String>,
}

/// The metrics of a query. Labels of a grouping belong to all of them.
pub(crate) fn selectors(query: &str) -> Vec<Selector> {
    let grouped: Vec<_> = ["by (", "label_values("]
        .iter()
        .flat_map(|opens| {
            query
                .match_indices(opens)
                .map(|(at, _)| &query[at + opens.len()..])
        })
        .filter_map(|rest| Some(&rest[..rest.find(')')?]))
        .flat_map(|list| match list.rsplit_once("},") {
            // label_values(metric{...}, label)
            Some((_, label)) => vec![label],
            None => list.split(',').collect(),
        })
        .map(|label| label.trim().to_owned())
        .filter(|label| !label.starts_with("distlock_"))
        .collect();
    let mut found = Vec::new();
    for (at, _) in query.match_indices("distlock_") {
        let rest = &query[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (metric, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = matchers.map_or("", |(matchers, _)| matchers);
        let mut labels = grouped.clone();
        for matcher in matchers.split("\",") {
            let end = matcher.find(['=', '!']).unwrap_or(0);
            labels.extend(Some(matcher[..end].trim().to_owned()).filter(|label| !label.is_empty()));
        }
        found.push(Selector {
            metric: metric.to_owned(),
            labels,
        });
    }
    found
}

/// The metric without what a histogram adds.
pub(crate) fn family(metric: &str) -> &str {
    ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| metric.strip_suffix(suffix))
        .unwrap_or(metric)
}

#[test]
fn metrics_and_labels_are_found() {
    let selector = |metric: &str, labels: &[&str]| Selector {
        metric: metric.into(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    assert_eq!(
        selectors(
            r#"sum by (le, lock) (rate(distlock_a_bucket{job=~"$job", outcome!="ok"}[5m])) / distlock_b"#
        ),
        [
            selector("distlock_a_bucket", &["le", "lock", "job", "outcome"]),
            selector("distlock_b", &["le", "lock"]),
        ]
    );
    assert_eq!(
        selectors(r#"label_values(distlock_a{job=~"$job"}, lock)"#),
        [selector("distlock_a", &["lock", "job"])]
    );
    assert_eq!(family("distlock_a_bucket"), "distlock_a");
}
