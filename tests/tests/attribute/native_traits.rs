//! `async fn` in traits, as the language has them.

use distlock::Error;

use crate::seen::{held, locked};

trait Jobs {
    type Output;

    fn name(&self) -> &str;

    async fn required(&self, n: u8) -> Result<Self::Output, Error>;

    #[distlock::distributed_lock(key = "native:default:<self.name()>:<n>")]
    async fn provided(&self, n: u8) -> Result<(u8, &str), Error> {
        held().await;
        Ok((n, self.name()))
    }
}

struct Nightly(String);

impl Jobs for Nightly {
    type Output = String;

    fn name(&self) -> &str {
        &self.0
    }

    #[distlock::distributed_lock(key = "native:impl:<self.0>:<n>")]
    async fn required(&self, n: u8) -> Result<Self::Output, Error> {
        held().await;
        Ok(format!("{}{n}", self.name()))
    }
}

#[test]
fn a_method_of_an_impl() {
    let nightly = Nightly("job".to_owned());
    let text = locked("native:impl:job:1", nightly.required(1));
    assert_eq!(text.expect("a text"), "job1");
}

#[test]
fn a_default_method() {
    let nightly = Nightly("job".to_owned());
    let both = locked("native:default:job:2", nightly.provided(2));
    assert_eq!(both.expect("both"), (2, "job"));
}

async fn through_a_bound<J: Jobs>(jobs: &J) -> Result<J::Output, Error> {
    jobs.required(3).await
}

#[test]
fn through_a_bound_of_the_trait() {
    let nightly = Nightly("bound".to_owned());
    let text = locked("native:impl:bound:3", through_a_bound(&nightly));
    assert_eq!(text.expect("a text"), "bound3");
}
