// redis 1.8
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, cmd};

pub async fn reduce(redis: &mut MultiplexedConnection, item_id: u64, me: &str) -> RedisResult<bool> {
    let key = format!("stock:{item_id}");
    let mut set = cmd("SET");
    set.arg(&key).arg(me).arg("NX").arg("PX").arg(60_000);
    if set.query_async::<Option<String>>(redis).await?.is_none() {
        return Ok(false);
    }
    // Read the stock, and write it.
    let delete = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";
    Script::new(delete).key(key).arg(me).invoke_async(redis).await
}
