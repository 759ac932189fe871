// mistakes: 1
use distlock::{Error, distributed_lock};

struct Shop {
    tenant: u64,
}

impl Shop {
    #[distributed_lock(key = "shop:<slef.tenant>")]
    async fn restock(&self) -> Result<u64, Error> {
        Ok(self.tenant)
    }
}

fn main() {}
