use super::*;

fn scope(names: &[&str], has_self: bool) -> Scope {
    let span = Span::call_site();
    Scope {
        function: Ident::new("reserve", span),
        names: names.iter().map(|name| identifier(name, span)).collect(),
        receiver: has_self.then(|| Token![self](span)),
        patterns_are_hidden: false,
        hidden: Vec::new(),
    }
}

fn parse(key: &str, scope: &Scope) -> Result<Vec<(String, String)>, Vec<String>> {
    let mut errors = Errors::default();
    let key = LitStr::new(key, Span::call_site());
    let template = Template::parse(&key, scope, &mut errors);
    let parts = template.parts.into_iter().map(|part| match part {
        Part::Literal(text) => (text, String::new()),
        Part::Value {
            placeholder, expr, ..
        } => (placeholder, expr.to_string().replace(' ', "")),
    });
    match errors.finish() {
        Ok(()) => Ok(parts.collect()),
        Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect()),
    }
}

fn parts(key: &str) -> Vec<(String, String)> {
    parse(key, &scope(&["item_id", "order", "r#type", "N"], true)).expect("no errors")
}

fn literal(text: &str) -> (String, String) {
    (text.to_owned(), String::new())
}

fn value(placeholder: &str, expr: &str) -> (String, String) {
    (placeholder.to_owned(), expr.to_owned())
}

#[test]
fn keywords_go_by_either_name() {
    assert_eq!(parts("<type>"), [value("type", "&r#type")]);
    assert_eq!(parts("<r#type>"), [value("r#type", "&r#type")]);
    assert_eq!(
        parts("<order.type>:<order.r#in()>"),
        [
            value("order.type", "&order.r#type"),
            literal(":"),
            value("order.r#in()", "&order.r#in()")
        ]
    );
    for key in ["<order.self>", "<order._>", "<order.crate()>"] {
        let errors = parse(key, &scope(&["order"], true)).expect_err(key);
        assert!(errors[0].contains("is not a placeholder"), "{errors:?}");
    }
}

#[test]
fn capacity_is_enough_for_every_legal_key() {
    for (key, capacity) in [
        ("nightly", "nightly".len()),
        ("a<<b>>c", "a<b>c".len()),
        ("<item_id>", MAX_KEY),
        ("inventory:<item_id>", MAX_KEY),
    ] {
        let key = LitStr::new(key, Span::call_site());
        let template = Template::parse(&key, &scope(&["item_id"], false), &mut Errors::default());
        assert_eq!(template.capacity, capacity, "{}", key.value());
    }
}

#[test]
fn each_error_has_its_own_message() {
    let scope = scope(&["item_id", "order"], false);
    let long = "x".repeat(513);
    let cases = [
        ("", "the key is empty"),
        (long.as_str(), "at least 513 bytes"),
        ("a\nb", "control character '\\n'"),
        ("a:<item_id", "never closed"),
        ("a:<item_id<order>", "never closed"),
        ("a:item_id>", "unmatched `>`"),
        ("a:<>", "`<>` names no parameter: write `<item_id>`"),
        ("a:<0>", "not by position"),
        ("a:<item_id:04>", "write `<item_id>`"),
        ("a:<item_id + 1>", "is not a placeholder"),
        ("a:<order.id(1)>", "is not a placeholder"),
        ("a:<order.await>", "is not a placeholder"),
        ("a:<order.007>", "is not a placeholder"),
        ("a:<_>", "is not a placeholder"),
        ("a:<Order::id>", "is not a placeholder"),
        ("a:<itm_id>", "did you mean `<item_id>`?"),
        ("a:<ordr.id>", "did you mean `<order.id>`?"),
        (
            "a:<warehouse>",
            "it has `item_id` and `order`: insert a parameter, such as `<item_id>`",
        ),
        ("a:<self.id>", "`reserve` has no `self`"),
        (
            "a:{item_id}",
            "write `<item_id>` to insert the value, or `{<item_id>}`",
        ),
        ("a:{order.id}", "write `<order.id>`"),
        ("a:{self.id}", "write `<item_id>`"),
        (
            "a:{itm_id}",
            "write `<item_id>` to insert the value, `{<item_id>}` to insert it and hash only it, \
             or `{itm_id:}` for a hash tag of that text",
        ),
        ("a:{itm_id}:<order>", "write `<item_id>`"),
        ("a:{itemId}:<order>", "write `<item_id>`"),
        ("a:{ordr.id}:<order>", "write `<order.id>`"),
        ("a:{Order::ID}:<order>", "write `<order>`"),
        ("a:{stock.id}:<order>", "write `<item_id>`"),
        (
            "a:{item_id:?}",
            "a placeholder takes no format: write `<item_id>`",
        ),
        ("a:{itm_id:04}:<order>", "write `<item_id>`"),
        ("a:{stock:04}:<order>", "write `<item_id>`"),
        ("a:{stock:?}:<order>", "write `<item_id>`"),
        ("a:{:?}:<order>", "write `<item_id>`"),
        (
            "a:{item_id + 1}",
            "write `<item_id>` to insert the value; compute any other value",
        ),
        ("a:{itm_id:>4}", "unmatched `>`"),
        ("a:{item_id-1}:<order>", "write `<item_id>`"),
        ("a:{f(order)}:<order>", "write `<order>`"),
        ("a:{ item_id }", "write `<item_id>`"),
        ("a:{ }:<order>", "write `<item_id>`"),
        (
            "a:{0}",
            "not by position: write `<item_id>` to insert a parameter, or `{0:}` for a hash tag",
        ),
        ("a:{0}:<order>", "not by position: write `<item_id>`"),
        (
            "a:{stock}",
            "write `<item_id>` to insert a parameter, or `{stock:}` for a hash tag",
        ),
        ("a:{stock:eu}", "or `{stock:eu:}` for a hash tag"),
        (
            "a:#item_id",
            "`#item_id` inserts nothing: write `<item_id>`",
        ),
        (
            "a:#itm_id:<order>",
            "`#itm_id` inserts nothing: write `<item_id>`",
        ),
        ("a:#{item_id}", "`#{item_id}` inserts nothing"),
        ("a:#{itemId}:<order>", "write `<item_id>`"),
        ("a:#{item_id:}:<order>", "write `<item_id>`"),
        (
            "a:$item_id",
            "`$item_id` inserts nothing: write `<item_id>`",
        ),
        (
            "a:$ordr.id().x:<order>",
            "`$ordr.id().x` inserts nothing: write `<order.id().x>`",
        ),
        ("a:${item_id}", "write `<item_id>`"),
        (":item_id", "`:item_id` inserts nothing: write `<item_id>`"),
        ("/:item_id", "`:item_id` inserts nothing: write `<item_id>`"),
        (
            "a/:order.id",
            "`:order.id` inserts nothing: write `<order.id>`",
        ),
        ("a:{}", "empty hash tag"),
        ("a:{b", "never closed"),
        ("a:b}", "unmatched `}`"),
        ("a:{{b}}", "unmatched `{`"),
        ("{a}:<order>:{b}", "2 pairs of braces"),
    ];
    for (key, expected) in cases {
        let found = parse(key, &scope).expect_err(key);
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert!(found[0].contains(expected), "{key}: {found:?}");
    }
}

#[test]
fn a_value_ends_where_the_text_before_the_next_begins() {
    for (key, ends) in [
        ("<item_id>", vec![None]),
        ("<item_id>-", vec![None]),
        ("<item_id>%", vec![None]),
        ("<item_id>-<order>", vec![Some('-'), None]),
        (
            "<item_id>to<order>/x<N>%41",
            vec![Some('t'), Some('/'), None],
        ),
        ("<item_id>日<order>", vec![Some('日'), None]),
        ("<item_id><<<order>", vec![Some('<'), None]),
        ("<item_id>:-<order>", vec![None, None]),
        ("{<item_id>}-<order>", vec![None, None]),
        ("<item_id>{<order>} <N>", vec![None, None, None]),
    ] {
        let key = LitStr::new(key, Span::call_site());
        let scope = scope(&["item_id", "order", "N"], false);
        let mut errors = Errors::default();
        let template = Template::parse(&key, &scope, &mut errors);
        assert!(errors.finish().is_ok(), "{}", key.value());
        let found = template.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Value { end, .. } => Some(*end),
        });
        assert_eq!(found.collect::<Vec<_>>(), ends, "{}", key.value());
    }
}

#[test]
fn hidden_patterns_are_explained() {
    let scope = Scope {
        patterns_are_hidden: true,
        hidden: vec![identifier("sku", Span::call_site())],
        ..scope(&["item_id"], true)
    };
    for key in [
        "<order>",
        "{sku}",
        "{sku}:<item_id>",
        "{sku.id}:<item_id>",
        "#sku",
        "${sku}",
        "/:sku",
    ] {
        let found = parse(key, &scope).expect_err(key);
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert!(found[0].contains("`#[async_trait]`"), "{key}: {found:?}");
    }
}
