// mistakes: 6
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<itm_id>:<warehouse>")]
async fn unknown_among_several(item_id: u64, quantity: u32, shop: &str) -> Result<u64, Error> {
    Ok(item_id + u64::from(quantity) + shop.len() as u64)
}

#[distributed_lock(key = "inventory:<item_id>")]
async fn no_parameters() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "inventory:<sku>")]
async fn local_variable(item_id: u64) -> Result<String, Error> {
    let sku = format!("sku-{item_id}");
    Ok(sku)
}

struct Shop {
    tenant: u64,
}

impl Shop {
    #[distributed_lock(key = "shop:<tenant>")]
    async fn field_without_self(&self, item_id: u64) -> Result<u64, Error> {
        Ok(self.tenant + item_id)
    }

    #[distributed_lock(key = "shop:<slef.tenant>")]
    async fn self_misspelt(&self) -> Result<u64, Error> {
        Ok(self.tenant)
    }
}

fn main() {}
