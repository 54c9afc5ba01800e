// node-redis against a service: `node node_redis.cjs PORT`. Ends with a line `ok`.
const assert = require("node:assert/strict");
const { createClient } = require("redis");

async function main(port) {
  for (const RESP of [2, 3]) {
    const client = createClient({ socket: { host: "127.0.0.1", port }, RESP, name: "guide" });
    client.on("error", () => {});
    await client.connect();
    assert.equal(await client.ping(), "PONG");
    const throttle = ["CL.THROTTLE", `node-${RESP}-\u0000\r\n\u00e4`, "4", "5", "60"];
    assert.deepEqual(await client.sendCommand(throttle), [0, 5, 4, -1, 12]);

    // Commands of one tick are sent together.
    const replies = await Promise.all(Array.from({ length: 6 }, () => client.sendCommand(throttle)));
    assert.deepEqual(replies.map((reply) => reply[0]), [0, 0, 0, 0, 1, 1]);
    assert.ok(replies[4][3] >= 1 && replies[4][3] <= 12, String(replies[4]));

    await assert.rejects(client.sendCommand(["CL.THROTTLE", "k", "many", "5", "60"]));
    assert.equal(await client.echo("still here"), "still here");

    await client.close();
    await client.connect();
    assert.equal((await client.sendCommand(throttle))[0], 1);
    await client.close();
  }
  console.log("ok");
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
