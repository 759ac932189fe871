//! A worker: a process that uses the lock as a service would, and records what it believes.

mod body;
mod census;
mod doors;
mod nodes;
mod observer;
mod orders;
mod server;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use distlock::{Credentials, LockManager, LockManagerBuilder, Tls};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::history::{Call, Outcome, Recorder, When, WorkerEvent, now};
use crate::profile::Profile;
use crate::random::Random;
use crate::resource::Pool;
use crate::topology::terms;
use body::Ticket;
use nodes::Nodes;
use observer::{Observer, Witness};
use orders::{Dice, Task};
pub(crate) use orders::{Order, all_keys, kept, key};
use server::Server;

/// Options of a worker's process. The URL is `DISTLOCK_URL`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    number: u32,
    #[arg(long)]
    generation: u32,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    profile: String,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    keys: u32,
    /// Of each lock.
    #[arg(long)]
    min_replicas: u32,
    /// Of the quorum; zero where there is none.
    #[arg(long)]
    nodes: u32,
    /// The resource.
    #[arg(long)]
    resource: SocketAddr,
    /// The lock servers, one of which has the locks, or all of which vote, past all faults.
    #[arg(long = "server")]
    servers: Vec<SocketAddr>,
    /// Who signed the server's certificate.
    #[arg(long)]
    authority: Option<PathBuf>,
}

/// What the supervisor wants, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Work,
    /// Begin no more calls.
    Quiet,
    Stop,
}

/// What all calls of a worker need.
#[derive(Debug)]
struct Context {
    worker: u32,
    generation: u32,
    recorder: Arc<Recorder>,
    manager: LockManager,
    observer: Observer,
    resource: Pool,
    next_op: AtomicU64,
}

/// Runs until the supervisor says stop, or closes stdin.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let file = format!("worker-{}-{}.jsonl", args.number, args.generation);
    let recorder = Recorder::create(&args.dir.join(&file))
        .with_context(|| format!("cannot write {file} to {}", args.dir.display()))?;
    let recorder = Arc::new(recorder);
    recorder.record(&WorkerEvent::Started {
        at: now(),
        worker: args.number,
        generation: args.generation,
        pid: std::process::id(),
    });
    let runtime = runtime(args.number)?;
    let wishes = listen();
    runtime.block_on(serve(args, recorder, wishes))
}

/// Both flavours, by the worker's number.
fn runtime(number: u32) -> std::io::Result<Runtime> {
    let mut builder = match number % 2 {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1 + number as usize / 2 % 2);
            builder
        }
    };
    // TLS reads its files on threads that its runtime keeps for a while, ten seconds unless set.
    builder
        .enable_all()
        .thread_keep_alive(Duration::from_millis(500))
        .build()
}

/// Reads the supervisor's wishes from stdin, as long as there is a supervisor.
fn listen() -> watch::Receiver<Wish> {
    let (wish, wishes) = watch::channel(Wish::Work);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                "quiet" => drop(wish.send_replace(Wish::Quiet)),
                _ => drop(wish.send_replace(Wish::Stop)),
            }
        }
        wish.send_replace(Wish::Stop);
    });
    wishes
}

fn say(what: &str) {
    println!("{what}");
    // A supervisor that is gone hears nothing.
    let _ = std::io::stdout().flush();
}

async fn serve(
    args: &Args,
    recorder: Arc<Recorder>,
    mut wishes: watch::Receiver<Wish>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    let before = census::census(When::Before, &runtime);
    recorder.record(&before);
    let Some(manager) = connect(args, &mut wishes).await? else {
        recorder.record(&WorkerEvent::Stopped { at: now() });
        say("stopped");
        return Ok(());
    };
    say("connected");
    let context = Arc::new(Context {
        worker: args.number,
        generation: args.generation,
        recorder: recorder.clone(),
        manager,
        observer: Observer::start(recorder.clone(), witness(args))?,
        resource: Pool::new(args.resource),
        next_op: AtomicU64::new(1),
    });
    work(args, &context, &wishes).await?;
    say("idle");
    // An error means that nobody is there any more to wish for anything.
    let _ = wishes.wait_for(|wish| *wish == Wish::Stop).await;
    context.manager.shutdown().await;
    let context = Arc::into_inner(context).context("a call is still under way")?;
    context.observer.stop();
    context.resource.close();
    drop(context.manager);
    let after = settled(&before, &runtime).await;
    recorder.record(&after);
    recorder.record(&WorkerEvent::Stopped { at: now() });
    say("stopped");
    Ok(())
}

/// Connects, in spite of all faults; `None` if it is told to stop first.
async fn connect(
    args: &Args,
    wishes: &mut watch::Receiver<Wish>,
) -> anyhow::Result<Option<LockManager>> {
    let name = format!("worker-{}-{}", args.number, args.generation);
    loop {
        let builder = builder(args)?.client_name(&name);
        let builder = distlock::__inside::lanes_at_once(builder);
        tokio::select! {
            manager = builder.connect() => if let Ok(manager) = manager {
                return Ok(Some(manager));
            },
            _ = wishes.wait_for(|wish| *wish == Wish::Stop) => return Ok(None),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the supervisor wants it to connect to.
fn builder(args: &Args) -> anyhow::Result<LockManagerBuilder> {
    let url = std::env::var("DISTLOCK_URL").context("DISTLOCK_URL")?;
    let builder = LockManager::builder().url(url);
    let mut builder = builder.min_replicas(args.min_replicas);
    if args.nodes > 0 {
        builder = builder.quorum(terms(Profile::named(&args.profile)?));
    }
    if let Some(authority) = &args.authority {
        builder = builder.tls(Tls::new().ca_file(authority));
    }
    if let (Ok(user), Ok(password)) = (
        std::env::var("DISTLOCK_SENTINEL_USERNAME"),
        std::env::var("DISTLOCK_SENTINEL_PASSWORD"),
    ) {
        builder = builder.sentinel_credentials(Credentials::new(user, password));
    }
    Ok(builder)
}

/// Whom audits ask.
fn witness(args: &Args) -> Witness {
    if args.nodes > 0 {
        Witness::Nodes(Nodes::of(&args.servers))
    } else {
        Witness::One(Server::of(args.servers.clone()))
    }
}

/// Works until no more calls are wanted, and the last one has returned.
async fn work(
    args: &Args,
    context: &Arc<Context>,
    wishes: &watch::Receiver<Wish>,
) -> anyhow::Result<()> {
    let profile = Profile::named(&args.profile)?;
    let keepers = if args.min_replicas > 0 {
        profile.load.keepers
    } else {
        0
    };
    let tasks = [
        (Task::Any, profile.tasks(args.number)),
        (Task::Queue, profile.load.queue_tasks),
        (Task::Keep, keepers),
    ];
    let tasks = tasks
        .iter()
        .flat_map(|&(task, count)| (0..count).map(move |_| task));
    let mut all = JoinSet::new();
    for (number, task) in (0u64..).zip(tasks) {
        let [worker, generation] = [args.number, args.generation].map(u64::from);
        let mut dice = Dice {
            random: Random::new(&[args.seed, worker, generation, number]),
            profile,
            keys: args.keys,
            task,
        };
        let context = context.clone();
        let mut wishes = wishes.clone();
        all.spawn(async move {
            while *wishes.borrow() == Wish::Work {
                let order = dice.draw();
                let think = order.think;
                call(&context, order).await;
                let quiet = wishes.wait_for(|wish| *wish != Wish::Work);
                let _ = tokio::time::timeout(think, quiet).await;
            }
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.context("a call panicked")?;
    }
    Ok(())
}

async fn call(context: &Arc<Context>, mut order: Order) {
    if order.call == Call::Attribute
        && let Some(wait) = doors::annotated_wait(order.lease.as_millis())
    {
        order.wait = Duration::from_millis(wait);
    }
    let op = context.next_op.fetch_add(1, Ordering::Relaxed);
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    context.recorder.record(&WorkerEvent::Invoked {
        at: now(),
        op,
        workload: order.workload,
        call: order.call,
        key: order.key.clone(),
        lease_ms: millis(order.lease),
        wait_ms: millis(order.wait),
        on_lost: order.on_lost,
        body: order.body,
    });
    let drop_after = order.drop_after;
    let ticket = Ticket {
        context: context.clone(),
        op,
        order,
    };
    let entered = doors::enter(&ticket);
    let (outcome, detail) = match drop_after {
        None => entered.await,
        Some(after) => match tokio::time::timeout(after, entered).await {
            Ok(returned) => returned,
            Err(_) => (Outcome::Dropped, None),
        },
    };
    context.recorder.record(&WorkerEvent::Returned {
        at: now(),
        op,
        outcome,
        detail,
    });
}

/// Threads end a moment after they were told to.
async fn settled(before: &WorkerEvent, runtime: &tokio::runtime::Handle) -> WorkerEvent {
    let mut after = census::census(When::After, runtime);
    for _ in 0..200 {
        if census::numbers(&after) == census::numbers(before) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        after = census::census(When::After, runtime);
    }
    after
}
