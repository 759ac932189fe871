//! x
use model::*;
fn main() {
    let base = Config { name: "two clients", calls: &[1, 1], rules: Rules::ALL, times: SHORT,
        faults: Faults { late_ticks: Faults::ANY, ..Faults::default() }, renewals: false, doubt: true, pipe: 3, served_within: 20, depth: None };
    let args: Vec<u8> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let calls: &'static [u8] = Vec::leak(vec![args[0]; args[1] as usize]);
    let f = |i: usize| args.get(i).copied().unwrap_or(0);
    let mut c = Config { calls, faults: Faults { cuts: f(2), closes: f(3), crashes: f(4), flushes: f(5), refusals: f(6), give_ups: f(7), late_ticks: f(8) }, ..base };
    c.renewals = f(9) > 0;
    c.times = if f(10) > 0 { LONG } else { SHORT };
    c.doubt = f(11) > 0;
    c.pipe = 2.max(f(12) as usize);
    let d = f(13) as usize; if d > 0 { c.depth = Some(d) }
    if let Ok(rule) = std::env::var("RULE") {
        match rule.as_str() { "a" => c.rules.grant_age = false, "b" => c.rules.token_of_proof = false, "c" => c.rules.no_way_back = false,
            "d" => { c.rules.kill_old = false; c.rules.undo_twice = false }, "k" => c.rules.kill_old = false,
            "e" => c.rules.write_first = false, "f" => c.rules.drive = false, "g" => c.rules.queue_first = false, _ => {} }
        if let Ok(w) = std::env::var("CLAIM") {
            let r = refute(&c, Claim::ALL[w.parse::<usize>().unwrap()]);
            println!("{} states depth {} {:?} longest {}", r.states, r.depth, r.took, r.longest_wait);
            for x in &r.refuted { println!("-- {:?}\n{}", x.claim, x.trace()); }
            return;
        }
    }
    let r = explore(&c, 2);
    println!("{} states depth {} {:?} longest {}", r.states, r.depth, r.took, r.longest_wait);
    for x in &r.refuted { println!("-- {:?}\n{}", x.claim, x.trace()); }
}
