//! Which servers may be members, and how they are reached.

use distlock::{Error, LockManager};
use distlock_tests::RedisQuorum;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_of_one_server_are_refused() {
    let quorum = RedisQuorum::start(2);
    let port = quorum.server(0).port();
    let url = format!("{},localhost:{port}", quorum.url());
    let error = LockManager::connect(url).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("another name"), "{error}");
}
