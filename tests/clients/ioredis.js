// SPDX-License-Identifier: MIT
// ioredis, of the major version whose package is given: see README.md.
"use strict";

const { once } = require("node:events");

const PIPELINE = 1000;
const { PASSWORD, PORT, SOCKET } = process.env;
const name = process.argv[2];
const Redis = require(name);

async function main() {
  console.log("version", require(`${name}/package.json`).version);
  const client = new Redis({
    ...(SOCKET ? { path: SOCKET } : { host: "127.0.0.1", port: Number(PORT) }),
    password: PASSWORD || undefined,
  });
  // While the daemon is away each try to connect ends in one.
  client.on("error", (error) => console.error(error.message));
  console.log("ping", await client.ping());

  const pipeline = client.pipeline();
  for (let user = 1; user <= PIPELINE; user++) {
    pipeline.call("LIKE", user, 42);
  }
  const replies = await pipeline.exec();
  console.log("pipeline", replies.filter(([, reply]) => reply === 1).length);
  console.log("array", (await client.call("LIKED", 7, 42, 43)).join(","));
  try {
    console.log("reply", await client.call("LIKE", 7, "nobody"));
  } catch (error) {
    console.log("error", error.message);
  }

  console.log("restart");
  await once(process.stdin, "data");
  console.log("again", await client.call("LIKE", 1001, 42));
  await client.quit();
  process.stdin.destroy();
}

main();
