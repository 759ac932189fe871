// mistakes: 7
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item_id>")]
async fn option(item_id: Option<u64>) -> Result<Option<u64>, Error> {
    Ok(item_id)
}

struct ItemId(u64);

#[distributed_lock(key = "inventory:<item_id>")]
async fn own_type(item_id: ItemId) -> Result<u64, Error> {
    Ok(item_id.0)
}

#[distributed_lock(key = "inventory:<item>")]
async fn reserve<T>(item: T) -> Result<T, Error> {
    Ok(item)
}

#[distributed_lock(key = "inventory:<item>")]
async fn release<T: ?Sized>(item: &T) -> Result<&T, Error> {
    Ok(item)
}

#[distributed_lock(key = "inventory:<item>")]
async fn restock(item: impl Send) -> Result<(), Error> {
    drop(item);
    Ok(())
}

struct Shop<T> {
    tenant: T,
}

impl<T> Shop<T> {
    #[distributed_lock(key = "shop:<self.tenant>")]
    async fn open(&self) -> Result<&T, Error> {
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "shop:<tenant>")]
    async fn close(self, tenant: T) -> Result<(), Error> {
        drop(tenant);
        Ok(())
    }
}

fn main() {}
