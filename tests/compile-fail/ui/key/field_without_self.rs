// mistakes: 1
use distlock::{Error, distributed_lock};

struct Shop {
    tenant: u64,
}

impl Shop {
    #[distributed_lock(key = "shop:<tenant>")]
    async fn restock(&self, item_id: u64) -> Result<u64, Error> {
        Ok(self.tenant + item_id)
    }
}

fn main() {}
