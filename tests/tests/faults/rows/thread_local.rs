//! A runtime that lives in a `thread_local!`: the end of its thread drops it, and the bodies that run in it.

use std::cell::RefCell;

use distlock_tests::{RedisServer, Worker, child_args, is_child, this_test_binary};
use tokio::runtime::Runtime;

use crate::kit::{LONG, connect, until_clean};
use crate::rows::runtime;

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    // A task's panic is caught where it is dropped, and would go unnoticed.
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}");
        std::process::abort();
    }));
    let url = child_args().remove(0);
    let main = runtime();
    let manager = main.block_on(connect(&url));
    let lock = manager.lock("k").lease(LONG * 3);
    let thread = std::thread::spawn(move || {
        RUNTIME.with_borrow_mut(|runtime| {
            let own = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let own = runtime.insert(own);
            let (runs, running) = tokio::sync::oneshot::channel();
            own.spawn(async move {
                lock.run(async |_| {
                    runs.send(()).unwrap();
                    std::future::pending::<()>().await;
                })
                .await
            });
            own.block_on(running).unwrap();
        });
    });
    thread.join().unwrap();
    println!("thread ended");
    main.block_on(manager.shutdown());
    println!("done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_its_thread_releases() {
    let server = RedisServer::start();
    let args = [server.url()];
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut worker = Worker::spawn(&mut this_test_binary("rows::thread_local::entry", &args));
    worker.expect_line("thread ended", LONG);
    worker.expect_line("done", LONG);
    assert!(worker.wait(LONG).success());
    until_clean(&mut server.client(), LONG).await;
}
