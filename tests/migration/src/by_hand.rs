// redis 1.8
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, cmd};

pub async fn reduce(redis: &mut MultiplexedConnection, id: u64, me: &str) -> RedisResult<bool> {
    let key = format!("stock:{id}");
    let mut set = cmd("SET");
    set.arg(&key).arg(me).arg("NX").arg("PX").arg(60_000);
    if set.query_async::<Option<String>>(redis).await?.is_none() {
        return Ok(false);
    }
    // Read the stock, and write it.
    let delete = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";
    let script = Script::new(delete);
    script.key(key).arg(me).invoke_async(redis).await
}
