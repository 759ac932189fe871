//! How a connection says who we are.

use std::time::Duration;

use crate::config::credentials::{Credentials, Source};
use crate::error::Outage;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::redis::conn::session::Session;
use crate::store::redis::wire::trouble;

/// How long a source may take, and a server.
const WITHIN: Duration = Duration::from_secs(10);

/// The credentials of the moment.
pub(crate) async fn ask(source: &Source) -> Result<Credentials, Trouble> {
    let failed = |why: String| {
        let detail = format!("the credentials could not be had from their source: {why}");
        Trouble::new(Outage::Unreachable, detail)
    };
    match tokio::time::timeout(WITHIN, source.ask()).await {
        Ok(asked) => asked.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer for {WITHIN:?}"))),
    }
}

/// Says it again, on a connection that lives.
pub(crate) async fn authenticate(
    session: &Session,
    credentials: &Credentials,
) -> Result<(), Trouble> {
    let mut auth = redis::cmd("AUTH");
    // By name: a default user without a password takes any, but only so.
    auth.arg(credentials.user().unwrap_or("default"))
        .arg(credentials.reveal());
    match tokio::time::timeout(WITHIN, session.connection.send(auth)).await {
        Ok(Ok(_)) => Ok(()),
        // It is gone, and its successor asks for itself.
        Ok(Err(_)) if session.end.is_told() => Ok(()),
        // The server's text repeats what was sent.
        Ok(Err(error)) if trouble::of(&error).code == Code::UnknownCommand => Err(Trouble::new(
            Outage::Denied,
            "the server does not know AUTH",
        )),
        Ok(Err(error)) => Err(trouble::of(&error)),
        Err(_) => Err(Trouble::timed_out(WITHIN)),
    }
}
