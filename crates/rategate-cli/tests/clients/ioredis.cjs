// ioredis against a service: `node ioredis.cjs PORT`. Ends with a line `ok`.
const assert = require("node:assert/strict");
const Redis = require("ioredis");

async function main(port) {
  const client = new Redis({ host: "127.0.0.1", port, connectionName: "guide", maxRetriesPerRequest: 3 });
  assert.equal(await client.ping(), "PONG");
  const throttle = ["CL.THROTTLE", "ioredis-\u0000\r\n", 4, 5, 60];
  assert.deepEqual(await client.call(...throttle), [0, 5, 4, -1, 12]);

  const pipeline = client.pipeline();
  for (let nth = 0; nth < 6; nth += 1) {
    pipeline.call(...throttle);
  }
  const replies = (await pipeline.exec()).map(([error, reply]) => {
    assert.equal(error, null);
    return reply;
  });
  assert.deepEqual(replies.map((reply) => reply[0]), [0, 0, 0, 0, 1, 1]);

  await assert.rejects(client.call("CL.THROTTLE", "k", "many", 5, 60));
  // The client reconnects by itself after a cut.
  const back = new Promise((resolve) => client.once("ready", resolve));
  client.disconnect(true);
  await back;
  assert.equal((await client.call(...throttle))[0], 1);
  await client.quit();
  console.log("ok");
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
