//! Hands the orders out, and takes them back from processes that die.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::Plan;
use super::process::{Heard, Process};
use crate::event::Event;
use crate::orders::{Order, Shop};
use crate::progress::{Progress, TICK};
use crate::report::{Casualty, count, title};
use crate::tally::Tally;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// All worker processes of a run.
#[derive(Debug)]
pub(super) struct Pool {
    processes: Vec<Process>,
    heard: UnboundedReceiver<Heard>,
    queue: VecDeque<Order>,
    tasks: usize,
    tally: Tally,
    progress: Progress,
    victim: Victim,
    deaths: Vec<Death>,
}

/// Whether, and whom, `--kill-one` kills.
#[derive(Debug)]
enum Victim {
    Nobody,
    /// The next process that begins to sell the most wanted item, for most others wait for that one.
    NextToSell(HashSet<u64>),
    Killed {
        number: usize,
        at: Instant,
    },
}

/// A process that died.
#[derive(Debug)]
struct Death {
    casualty: Casualty,
    at: Instant,
    /// Items that it was selling, and nobody has sold since.
    stuck: HashSet<u32>,
}

impl Pool {
    /// Starts the processes and waits until all are connected.
    pub(super) async fn start(shop: &Shop, plan: &Plan, stock: &str) -> Result<Pool> {
        let (said, heard) = unbounded_channel();
        let processes = (0..plan.processes)
            .map(|number| Process::start(plan, stock, number, said.clone()))
            .collect::<Result<Vec<_>>>()?;
        let mut pool = Pool {
            processes,
            heard,
            queue: shop.orders.iter().copied().collect(),
            tasks: plan.tasks,
            tally: Tally::new(&shop.orders),
            progress: Progress::new(title(plan.locked)),
            victim: if plan.kill_one {
                Victim::NextToSell(most_wanted(&shop.orders))
            } else {
                Victim::Nobody
            },
            deaths: Vec::new(),
        };
        let pids: Vec<String> = pool
            .processes
            .iter()
            .map(|process| process.pid.to_string())
            .collect();
        pool.progress
            .note(&format!("worker processes {}", pids.join(" ")));
        tokio::time::timeout(READY_WITHIN, pool.ready())
            .await
            .with_context(|| format!("the workers were not ready within {READY_WITHIN:?}"))??;
        Ok(pool)
    }

    async fn ready(&mut self) -> Result<()> {
        while self.processes.iter().any(|process| !process.ready) {
            match self.heard.recv().await {
                Some(Heard::Said(number, Event::Ready)) => self.processes[number].ready = true,
                Some(Heard::Said(_, Event::Failed { message })) => bail!(message),
                _ => bail!("a worker ended before it was ready"),
            }
        }
        Ok(())
    }

    /// Gives out orders until all are finished.
    pub(super) async fn work_off(&mut self) -> Result<()> {
        self.hand_out().await;
        let mut tick = tokio::time::interval(TICK);
        while !self.tally.is_complete() {
            tokio::select! {
                Some(heard) = self.heard.recv() => match heard {
                    Heard::Said(number, event) => self.hear(number, event).await?,
                    Heard::Gone(number) => self.bury(number).await?,
                },
                _ = tick.tick() => self.progress.tick(&self.tally),
            }
        }
        self.progress.end(&self.tally);
        if let Victim::NextToSell(_) = self.victim {
            self.progress
                .note("it was over too soon to kill a process; give it more orders");
        }
        Ok(())
    }

    /// Lets the processes release what they hold, and end.
    pub(super) async fn end(mut self) -> (Tally, Vec<Casualty>) {
        for process in &mut self.processes {
            process.ended().await;
        }
        let casualties = self
            .deaths
            .into_iter()
            .map(|death| death.casualty)
            .collect();
        (self.tally, casualties)
    }

    async fn hear(&mut self, number: usize, event: Event) -> Result<()> {
        self.tally.add(&event);
        match event {
            Event::Ready | Event::Worked(_) => {}
            Event::Started { order, .. } => self.maybe_kill(number, order),
            Event::Finished { order, .. } => {
                if let Some(order) = self.processes[number].in_hand.remove(&order) {
                    self.unstick(order.item_id);
                }
                self.hand_out().await;
            }
            Event::Repeated { order, why } => {
                self.progress
                    .note(&format!("order {order} is tried again: {why}"));
            }
            Event::Failed { message } => bail!(message),
        }
        Ok(())
    }

    /// Gives every process as many orders as it may have in hand.
    async fn hand_out(&mut self) {
        for process in &mut self.processes {
            while process.is_alive() && process.in_hand.len() < self.tasks {
                let Some(order) = self.queue.pop_front() else {
                    return;
                };
                process.give(order).await;
            }
        }
    }

    /// In the middle of the run, kills the process that has just locked the most wanted item.
    fn maybe_kill(&mut self, number: usize, order: u64) {
        let Victim::NextToSell(most_wanted) = &self.victim else {
            return;
        };
        let half = self.tally.finished() * 2 >= self.tally.orders;
        if half && most_wanted.contains(&order) {
            self.processes[number].kill();
            let at = Instant::now();
            let pid = self.processes[number].pid;
            self.victim = Victim::Killed { number, at };
            self.progress.note(&format!(
                "killed process {pid} (SIGKILL) while it held the busiest lock"
            ));
        }
    }

    /// Gives the orders of a process that has died to the others, first of all.
    async fn bury(&mut self, number: usize) -> Result<()> {
        let process = &mut self.processes[number];
        let pid = process.pid;
        let status = process.ended().await;
        let how = status.map_or("ended".into(), |status| status.to_string());
        let mut orders: Vec<Order> = process.in_hand.drain().map(|(_, order)| order).collect();
        orders.sort_by_key(|order| order.id);
        self.progress.note(&format!(
            "process {pid} is gone ({how}); the others get its {}",
            count(orders.len(), "order")
        ));
        if !self.processes.iter().any(Process::is_alive) {
            bail!(
                "no worker process is left, and {} orders are",
                self.tally.orders - self.tally.finished()
            );
        }
        self.deaths.push(Death {
            casualty: Casualty {
                pid,
                orders: orders.len(),
                delay: Duration::ZERO,
            },
            at: match self.victim {
                Victim::Killed { number: victim, at } if victim == number => at,
                _ => Instant::now(),
            },
            stuck: orders.iter().map(|order| order.item_id).collect(),
        });
        for order in orders.into_iter().rev() {
            self.queue.push_front(order);
        }
        self.hand_out().await;
        Ok(())
    }

    /// Notes that an item was sold, by whomever.
    fn unstick(&mut self, item: u32) {
        for death in &mut self.deaths {
            if death.stuck.remove(&item) {
                death.casualty.delay = death.casualty.delay.max(death.at.elapsed());
            }
        }
    }
}

/// The orders for the item that most people want.
fn most_wanted(orders: &[Order]) -> HashSet<u64> {
    let mut counts = HashMap::<u32, usize>::new();
    for order in orders {
        *counts.entry(order.item_id).or_default() += 1;
    }
    let item = counts
        .into_iter()
        .max_by_key(|(item, count)| (*count, *item))
        .map(|(item, _)| item);
    orders
        .iter()
        .filter(|order| Some(order.item_id) == item)
        .map(|order| order.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_wanted_item_is_that_of_most_orders() {
        let order = |id, item_id| Order {
            id,
            item_id,
            quantity: 1,
        };
        let orders = [order(1, 5), order(2, 9), order(3, 5), order(4, 7)];
        assert_eq!(most_wanted(&orders), HashSet::from([1, 3]));
        assert!(most_wanted(&[]).is_empty());
    }
}
