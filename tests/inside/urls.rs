//! Every text is either a URL of a server or an error, and neither shows a password.

use proptest::prelude::*;
use proptest::sample::select;

use redis::ProtocolVersion;

use super::*;
use crate::error::Outage;

/// The text at both ends of every password.
const MARK: &str = "hunter2";

fn parse(url: &str) -> Result<RedisConfig, Error> {
    RedisConfig::parse(url, "distlock", Duration::from_secs(2))
}

/// Returns all texts about a URL: its error, or the texts about the server that it names.
fn shown(url: &str) -> String {
    match parse(url) {
        Err(error) => format!("{error} {error:?}"),
        Ok(config) => {
            let troubles = [Outage::Denied, Outage::Unreachable];
            let errors = troubles
                .map(|outage| config.connect_error(StoreError::new(outage, "no"), Duration::ZERO));
            format!(
                "{} {errors:?} {} {}",
                config.identity(),
                errors[0],
                errors[1]
            )
        }
    }
}

#[test]
fn hosts_in_any_order_are_one_store_and_shown_as_given() {
    for (scheme, path) in [
        ("sentinel", "/service/3"),
        ("cluster", ""),
        ("quorum", "/3"),
    ] {
        let parsed = ["c,a:7,b", "b,c,a:7"].map(|hosts| {
            let config = parse(&format!("redis+{scheme}://{hosts}{path}")).unwrap();
            assert_eq!(
                config.address().find('b') < config.address().find('a'),
                hosts.starts_with('b')
            );
            config.identity()
        });
        assert_eq!(parsed[0], parsed[1]);
    }
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// A password, raw or percent-encoded.
fn password() -> impl Strategy<Value = String> {
    let odd = select(vec![
        "", ":", "@", "/", "?", "#", "%", "%40", "[", "]", "\\", " ", "\t", "\n", "é", "://", "0",
        "&", "=",
    ]);
    (
        prop::collection::vec(odd, 0..4),
        any::<bool>(),
        select(vec!["", "12", "6379"]),
    )
        .prop_map(|(odd, encode, first)| {
            let password = format!("{first}{MARK}{}{MARK}", odd.concat());
            if encode { encoded(&password) } else { password }
        })
}

/// URLs around a password that are correct, nearly correct, or cut short.
fn with_password() -> impl Strategy<Value = String> {
    let scheme = select(vec![
        "redis://",
        "redis://",
        "redis://",
        "valkey://",
        "rediss://",
        "valkeys://",
        "unix://",
        "redis+unix://",
        "redis+sentinel://",
        "rediss+sentinel://",
        "redis+cluster://",
        "redis+quorum://",
        "http://",
        "redis:/",
        "redis:",
        "redis",
        "://",
        "//",
        "",
        "REDIS://",
        "memory:",
        " redis://",
        "redis\t://",
    ]);
    let user = select(vec![
        ":", "user:", "default:", "user@", "a:b:", "%zz:", "1:", "user:80", "user:80/", "user:80?",
        "user:80#", "",
    ]);
    let host = select(vec![
        "@localhost",
        "@localhost:7000",
        "@[::1]:7000",
        "@",
        "@:7000",
        "@host:port",
        "@host:99999",
        "@a@b",
        "@ho st",
        "@127.0.0.1",
        "@a:1,[::1],c",
        "@a,@b",
        ",b@a",
    ]);
    let tail = select(vec![
        "",
        "/",
        "/0",
        "/3",
        "/zero",
        "/1/2",
        "?x=y",
        "?protocol=resp2",
        "#insecure",
        "/0?db=1#x",
        "?pass=hunter2",
        "/service",
        "/service/3",
        "/x.sock?pass=hunter2&user=u",
    ]);
    (scheme, user, password(), host, tail).prop_map(|(scheme, user, password, host, tail)| {
        format!("{scheme}{user}{password}{host}{tail}")
    })
}

/// The schemes of a server that this build can use.
const SCHEMES: &[&str] = if cfg!(feature = "tls") {
    &["redis", "valkey", "rediss", "valkeys"]
} else {
    &["redis", "valkey"]
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_url_or_an_error(text in any::<String>(), scheme in select(vec!["", "redis://", "valkey://", "unix://", "redis+unix://", "rediss://", "redis+sentinel://", "valkeys+sentinel://a/", "redis+cluster://", "redis+quorum://a,b,"])) {
        let url = format!("{scheme}{text}");
        if let Err(error) = parse(&url) {
            prop_assert!(matches!(error, Error::Config { .. }), "{:?}", &error);
            let message = error.to_string();
            prop_assert!(message.contains("redis://[user:password@]host"), "{}", message);
            prop_assert!(message.len() < 350 && !message.contains(char::is_control), "{:?}", message);
        }
    }

    #[test]
    fn no_password_is_shown(url in with_password()) {
        let shown = shown(&url);
        prop_assert!(!shown.contains(MARK), "{:?}: {}", url, shown);
    }

    #[test]
    fn the_host_of_an_accepted_url_follows_the_last_at(url in with_password()) {
        let Ok(config) = parse(&url) else { return Ok(()) };
        let StoreLocation::Single(ServerLocation::Direct(ConnectionAddr::Tcp(host, port))) = &config.location else { return Ok(()) };
        let behind = url.rsplit_once('@').map(|(_, behind)| behind.trim_start_matches('['));
        prop_assert!(behind.is_some_and(|behind| behind.starts_with(host.as_str())), "{:?} goes to {}:{}", url, host, port);
    }

    #[test]
    fn a_valid_url_is_parsed_into_its_parts(
        scheme in select(SCHEMES),
        user in prop::option::of(any::<String>()), pass in prop::option::of(any::<String>()),
        host in select(vec![("localhost", "localhost"), ("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("a.b-c", "a.b-c")]),
        port in prop::option::of(1u16..), db in prop::option::of(0..1_000i64),
    ) {
        let text = |part: &Option<String>| part.as_deref().map(encoded).unwrap_or_default();
        let credentials = match (&user, &pass) {
            (None, None) => String::new(),
            (_, None) => format!("{}@", text(&user)),
            (_, Some(_)) => format!("{}:{}@", text(&user), text(&pass)),
        };
        let tail = [port.map(|port| format!(":{port}")), db.map(|db| format!("/{db}"))];
        let url = format!("{scheme}://{credentials}{}{}", host.0, tail.map(Option::unwrap_or_default).concat());
        let config = parse(&url).map_err(|error| TestCaseError::fail(format!("{url}: {error}")))?;
        let address = ConnectionAddr::Tcp(host.1.into(), port.unwrap_or(6379));
        prop_assert_eq!(&config.location, &StoreLocation::Single(ServerLocation::Direct(address)), "{}", &url);
        let is_tls = scheme.ends_with("ss") || scheme.ends_with("ys");
        prop_assert_eq!((config.tls.is_some(), config.address().starts_with("rediss://")), (is_tls, is_tls), "{}", &url);
        let redis = &config.settings;
        prop_assert_eq!(redis.db(), db.unwrap_or(0), "{}", &url);
        let not_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        prop_assert_eq!(redis.username().map(str::to_owned), not_empty(user), "{}", &url);
        prop_assert_eq!(not_empty(redis.password().map(str::to_owned)), not_empty(pass), "{}", &url);
        prop_assert_eq!(redis.protocol(), ProtocolVersion::RESP3);
    }
}
