//! A worker: a process that uses the lock like a service, and records how it sees its holds.

mod accounts;
mod body;
mod doors;
mod hold;
mod nodes;
mod observer;
mod orders;
mod server;
mod table;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use distlock::{Credentials, LockManager, LockManagerBuilder, Tls};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::history::{Census, Outcome, Recorder, Step, When, WorkerEvent, worker_file};
use crate::profile::Profile;
use crate::random::Random;
use crate::resource::Pool;
use crate::servers::{PASSWORD, Topology, USER, terms};
use accounts::Database;
use body::Ticket;
use nodes::Nodes;
use observer::{Observer, Witness};
use orders::{Dice, Task};
pub(crate) use orders::{LONG_WAIT_MS, Order, all_keys, kept, key};
use server::Server;
use table::Table;

/// Options of a worker process; its URL is `DISTLOCK_URL`
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
    #[arg(long, value_enum)]
    topology: Topology,
    /// The address of the resource
    #[arg(long)]
    resource: SocketAddr,
    /// The addresses of the lock servers without faults; one has the locks, or a quorum
    #[arg(long = "server")]
    servers: Vec<SocketAddr>,
    /// The CA certificate of the servers
    #[arg(long)]
    authority: Option<PathBuf>,
}

/// The requests of the supervisor, in the order in which they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Work,
    /// Begin no new calls.
    Quiet,
    Stop,
}

/// The environment of all calls of a worker.
#[derive(Debug)]
struct Context {
    worker: u32,
    generation: u32,
    recorder: Arc<Recorder>,
    manager: LockManager,
    observer: Observer,
    resource: Pool,
    /// The database of the locks, if it has accounts.
    database: Option<Database>,
    next_op: AtomicU64,
}

impl Context {
    fn database(&self) -> anyhow::Result<&Database> {
        self.database.as_ref().context("no database")
    }
}

/// Runs until the supervisor requests a stop or closes stdin.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let file = worker_file(args.number, args.generation);
    let recorder = Arc::new(Recorder::create(&args.dir.join(&file))?);
    let runtime = runtime(args.number)?;
    let wishes = listen();
    runtime.block_on(serve(args, recorder, wishes))
}

/// Creates a runtime. The worker's number chooses the flavor.
fn runtime(number: u32) -> std::io::Result<Runtime> {
    let mut builder = match number % 2 {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1 + number as usize / 2 % 2);
            builder
        }
    };
    // The census counts the threads on which TLS reads files; tokio keeps them for 10 s by default.
    builder
        .enable_all()
        .thread_keep_alive(Duration::from_millis(500))
        .build()
}

/// Starts a thread that reads the supervisor's requests from stdin until stdin closes.
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
    // Fails only if the supervisor has exited.
    let _ = std::io::stdout().flush();
}

async fn serve(
    args: &Args,
    recorder: Arc<Recorder>,
    mut wishes: watch::Receiver<Wish>,
) -> anyhow::Result<()> {
    let runtime = Handle::current();
    let before = take_census(&runtime);
    recorder.record(&WorkerEvent::Census {
        when: When::Before,
        census: before,
    });
    let Some(manager) = connect(args, &mut wishes).await? else {
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
        database: (args.topology.has_accounts())
            .then(|| std::env::var("DISTLOCK_URL").map(Database::new))
            .transpose()?,
        next_op: AtomicU64::new(1),
    });
    work(args, &context, &wishes).await?;
    say("idle");
    // Fails only if no more requests can arrive.
    let _ = wishes.wait_for(|wish| *wish == Wish::Stop).await;
    context.manager.shutdown().await;
    let context = Arc::into_inner(context).context("a call is still under way")?;
    context.observer.stop();
    context.resource.close();
    drop(context.database);
    drop(context.manager);
    let census = settled(before, &runtime).await;
    let when = When::After;
    recorder.record(&WorkerEvent::Census { when, census });
    say("stopped");
    Ok(())
}

/// Connects, retrying until it succeeds. Returns `None` if the supervisor requests a stop first.
async fn connect(
    args: &Args,
    wishes: &mut watch::Receiver<Wish>,
) -> anyhow::Result<Option<LockManager>> {
    let name = format!("worker-{}-{}", args.number, args.generation);
    let url = std::env::var("DISTLOCK_URL").context("DISTLOCK_URL")?;
    loop {
        let builder = builder(args)?.client_name(&name);
        let builder = distlock::__inside::runtime_connections_at_once(builder);
        tokio::select! {
            manager = builder.connect(&url) => if let Ok(manager) = manager {
                return Ok(Some(manager));
            },
            _ = wishes.wait_for(|wish| *wish == Wish::Stop) => return Ok(None),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Creates a builder with the configuration of the supervisor.
fn builder(args: &Args) -> anyhow::Result<LockManagerBuilder> {
    let mut builder = LockManager::builder().min_replicas(args.topology.min_replicas());
    if args.topology.nodes() > 0 {
        builder = builder.quorum(terms(Profile::named(&args.profile)?));
    }
    if let Some(authority) = &args.authority {
        builder = builder.tls(Tls::new().ca_file(authority));
    }
    if matches!(args.topology, Topology::Sentinel | Topology::Replicas) {
        builder = builder.sentinel_credentials(Credentials::new(USER, PASSWORD));
    }
    Ok(builder)
}

/// Creates the witness that audits read.
fn witness(args: &Args) -> Witness {
    if args.topology.nodes() > 0 {
        Witness::Nodes(Nodes::of(&args.servers))
    } else if args.topology == Topology::Postgres {
        Witness::Database(Table::at(args.servers[0]))
    } else {
        Witness::One(Server::of(args.servers.clone()))
    }
}

/// Makes calls until no new ones are wanted and the last one has returned.
async fn work(
    args: &Args,
    context: &Arc<Context>,
    wishes: &watch::Receiver<Wish>,
) -> anyhow::Result<()> {
    let profile = Profile::named(&args.profile)?;
    let keepers = if args.topology.min_replicas() > 0 {
        profile.load.keepers
    } else {
        0
    };
    let transfers = if args.topology.has_accounts() {
        profile.load.transfers
    } else {
        0
    };
    let tasks = [
        (Task::Any, profile.load.tasks),
        (Task::Queue, profile.load.queue_tasks),
        (Task::Keep, keepers),
        (Task::Transfer, transfers),
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
            has_counted: args.topology.nodes() == 0,
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

async fn call(context: &Arc<Context>, order: Order) {
    let second = order.invocation.other_key.clone().map(|key| {
        let mut order = order.clone();
        order.invocation.other_key = Some(std::mem::replace(&mut order.invocation.key, key));
        order
    });
    let drop_after = order.drop_after;
    let ticket = |order| Ticket {
        context: context.clone(),
        op: context.next_op.fetch_add(1, Ordering::Relaxed),
        order,
    };
    let (first, second) = (ticket(order), second.map(ticket));
    let tickets = || std::iter::once(&first).chain(&second);
    tickets().for_each(|ticket| ticket.record(Step::Invoked(ticket.order.invocation.clone())));
    let entered = doors::enter(&first, second.as_ref());
    let (outcome, detail) = match drop_after {
        None => entered.await,
        Some(after) => match tokio::time::timeout(after, entered).await {
            Ok(returned) => returned,
            Err(_) => (Outcome::Dropped, None),
        },
    };
    for ticket in tickets() {
        let detail = detail.clone();
        ticket.record(Step::Returned { outcome, detail });
    }
}

/// Counts the threads, files and tasks of this process.
fn take_census(runtime: &Handle) -> Census {
    let entries = |directory| {
        let count = std::fs::read_dir(directory).map_or(0, Iterator::count);
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    Census {
        threads: entries("/proc/self/task"),
        fds: entries("/proc/self/fd"),
        tasks: u32::try_from(runtime.metrics().num_alive_tasks()).unwrap_or(u32::MAX),
    }
}

/// Threads end with a delay, so this retries up to two seconds until the census equals `before`.
async fn settled(before: Census, runtime: &Handle) -> Census {
    let mut after = take_census(runtime);
    for _ in 0..200 {
        if after == before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        after = take_census(runtime);
    }
    after
}
