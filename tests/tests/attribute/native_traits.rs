//! `async fn` in traits, without `async_trait`.

use distlock::Error;

use crate::seen::{held, returns};

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

async fn through_a_bound<J: Jobs>(jobs: &J) -> Result<J::Output, Error> {
    jobs.required(3).await
}

#[test]
fn methods_of_traits() {
    let nightly = Nightly("job".to_owned());
    returns("native:impl:job:1", nightly.required(1), &"job1");
    returns("native:default:job:2", nightly.provided(2), &(2, "job"));
    returns("native:impl:job:3", through_a_bound(&nightly), &"job3");
}
