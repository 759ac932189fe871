//! The settings that environment variables deliver.

use std::env::VarError;
use std::time::Duration;

use crate::config::credentials::Credentials;
use crate::config::options::Defaults;
use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;

const QUOTES: [char; 2] = ['"', '\''];

impl LockManager {
    /// Connects with the `DISTLOCK_*` environment variables, see
    /// [`LockManagerBuilder::connect_from_env`].
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # if std::env::var_os("DISTLOCK_URL").is_some() { return Ok(()) }
    /// // DISTLOCK_URL is not set here.
    /// let error = LockManager::from_env().await.unwrap_err();
    /// assert!(matches!(error, Error::Config { .. }), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`connect_from_env`](LockManagerBuilder::connect_from_env).
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](LockManager::connect).
    pub async fn from_env() -> Result<Self, Error> {
        Self::builder().connect_from_env().await
    }
}

impl LockManagerBuilder {
    /// Connects to the store at the URL in the environment variable `DISTLOCK_URL`.
    ///
    /// Further variables, if set, replace the options of this builder:
    ///
    /// - `DISTLOCK_NAMESPACE`: the [namespace](LockManagerBuilder::namespace).
    /// - `DISTLOCK_PASSWORD`: the password, and `DISTLOCK_USERNAME` the user. The URL then contains
    ///   neither, and can be shown to anyone.
    /// - `DISTLOCK_SENTINEL_USERNAME` and `DISTLOCK_SENTINEL_PASSWORD`: the same for the sentinels
    ///   of a `redis+sentinel://` URL.
    /// - `DISTLOCK_LEASE` and `DISTLOCK_WAIT`: the [lease](LockManagerBuilder::lease) and the
    ///   [wait](LockManagerBuilder::wait) of locks that set none, such as `15s`. These two replace
    ///   no option of this builder.
    ///
    /// An empty variable counts as unset. White space around a value is removed, of a password only
    /// the end of its line. Quotes around a value are an error, except around a password.
    ///
    /// The command `distlock` reads the same variables.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # if std::env::var_os("DISTLOCK_URL").is_some() { return Ok(()) }
    /// let builder = LockManager::builder().client_name("checkout-3");
    /// let error = builder.connect_from_env().await.unwrap_err(); // DISTLOCK_URL is not set here
    /// assert!(error.to_string().contains("DISTLOCK_URL"), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `DISTLOCK_URL` is not set, if a variable is not UTF-8 or not valid, or
    /// if a user is set without its password. Also, the errors of
    /// [`connect`](LockManagerBuilder::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes every connection that was opened.
    pub async fn connect_from_env(self) -> Result<LockManager, Error> {
        let (builder, url) = with_environment(self, None, None)?;
        let Some(url) = url else {
            return Err(Error::config(
                "the environment variable DISTLOCK_URL is not set, or empty; set it to a URL such as \
                 redis://127.0.0.1:6379, or to memory: for development",
            ));
        };
        builder.connect(&url).await
    }
}

/// Applies the variables, and returns the URL. What a command line passes goes before its
/// variable, and a user in that URL goes before the credentials.
///
/// # Errors
///
/// The errors of [`LockManagerBuilder::connect_from_env`] about variables.
pub fn with_environment(
    mut builder: LockManagerBuilder,
    passed_url: Option<&str>,
    passed_namespace: Option<&str>,
) -> Result<(LockManagerBuilder, Option<String>), Error> {
    let url = match passed_url {
        Some(url) => Some(url.to_owned()),
        None => variable("DISTLOCK_URL")?,
    };
    let is_passed = |part| passed_url.is_some_and(|url| url.contains(part));
    if let Some(namespace) = passed_namespace {
        builder.namespace = namespace.to_owned();
    } else if let Some(namespace) = variable("DISTLOCK_NAMESPACE")? {
        builder.namespace = namespace;
        builder.origins.add("the namespace", "DISTLOCK_NAMESPACE");
    }
    let Defaults { lease, wait, .. } = &mut builder.defaults;
    for (default, words, name) in [
        (lease, "the lease", "DISTLOCK_LEASE"),
        (wait, "the wait", "DISTLOCK_WAIT"),
    ] {
        if default.is_none() {
            *default = duration(name)?;
            if default.is_some() {
                builder.origins.add(words, name);
            }
        }
    }
    if (passed_url.is_none() || is_passed("+sentinel:"))
        && let Some((credentials, name)) = credentials("DISTLOCK_SENTINEL_")?
    {
        builder.sentinel_credentials = Some(credentials);
        builder.origins.add("`sentinel_credentials`", name);
    }
    if !is_passed("@") {
        if let Some((credentials, name)) = credentials("DISTLOCK_")? {
            builder = builder.credentials(credentials);
            builder
                .origins
                .add("remove the password", format!("unset {name}"));
            let both = "user and password in the URL, or in `credentials`";
            builder.origins.add(both, name.clone());
            builder.origins.add("`credentials`", name);
        } else if builder.credentials.is_none() {
            builder.origins.add("`credentials`", "DISTLOCK_PASSWORD");
        }
    }
    let url_name = passed_url.map_or("DISTLOCK_URL", |_| "--url");
    builder.origins.add("the lock store's URL", url_name);
    builder.origins.add("the URL", url_name);
    Ok((builder, url))
}

/// Returns user and password, and the names of their variables.
fn credentials(prefix: &str) -> Result<Option<(Credentials, String)>, Error> {
    let (user_name, name) = (format!("{prefix}USERNAME"), format!("{prefix}PASSWORD"));
    let (user, password) = (variable(&user_name)?, variable(&name)?);
    let Some(password) = password else {
        let unset = format!("{user_name} is set, but {name} is not; set both, or neither");
        return user.map_or(Ok(None), |_| Err(Error::config(unset)));
    };
    let quoted = match password.starts_with(QUOTES) && password.ends_with(QUOTES) {
        true => ", which has quotes around its value",
        false => "",
    };
    Ok(Some(match user {
        None => (Credentials::from_password(password), name + quoted),
        Some(user) => (
            Credentials::new(user, password),
            format!("{user_name} and {name}{quoted}"),
        ),
    }))
}

/// Returns a duration such as `15s`. A plain `0` is zero.
fn duration(name: &str) -> Result<Option<Duration>, Error> {
    let parse = |text: String| match &*text {
        "0" => Ok(Duration::ZERO),
        text => humantime::parse_duration(text).map_err(|error| {
            Error::config(format!(
                "{name} is not a duration ({error}); write 500ms, 15s, 2m or 1m30s"
            ))
        }),
    };
    variable(name)?.map(parse).transpose()
}

/// Returns the value of a variable. Containers deliver empty ones, values with the line break at
/// the end of a file, and the quotes of another syntax.
fn variable(name: &str) -> Result<Option<String>, Error> {
    let value = match std::env::var(name) {
        Ok(value) => value,
        Err(VarError::NotPresent) => return Ok(None),
        Err(VarError::NotUnicode(_)) => {
            return Err(Error::config(format!(
                "the environment variable {name} is not UTF-8; fix or unset it"
            )));
        }
    };
    // A password may contain anything else.
    let is_password = name.ends_with("PASSWORD");
    let value = if is_password {
        value.trim_end_matches(['\r', '\n'])
    } else {
        value.trim()
    };
    if !is_password && (value.starts_with(QUOTES) || value.ends_with(QUOTES)) {
        return Err(Error::config(format!(
            "the environment variable {name} has quotes around its value, which are part of it; remove them"
        )));
    }
    Ok((!value.is_empty()).then(|| value.to_owned()))
}
