// SPDX-License-Identifier: MIT
// node-redis, of the major version whose package is given: see README.md.
"use strict";

const { once } = require("node:events");

const PIPELINE = 1000;
const { PASSWORD, PORT, SOCKET } = process.env;
const name = process.argv[2];
const { createClient } = require(name);

async function main() {
  console.log("version", require(`${name}/package.json`).version);
  const client = createClient({
    socket: SOCKET
      ? { path: SOCKET }
      : { host: "127.0.0.1", port: Number(PORT) },
    password: PASSWORD || undefined,
  });
  // While the daemon is away each try to connect ends in one.
  client.on("error", (error) => console.error(error.message));
  await client.connect();
  console.log("ping", await client.ping());

  // What is sent within one turn of the loop goes out as one pipeline.
  const likes = [];
  for (let user = 1; user <= PIPELINE; user++) {
    likes.push(client.sendCommand(["LIKE", String(user), "42"]));
  }
  const replies = await Promise.all(likes);
  console.log("pipeline", replies.filter((reply) => reply === 1).length);
  const liked = await client.sendCommand(["LIKED", "7", "42", "43"]);
  console.log("array", liked.join(","));
  try {
    console.log("reply", await client.sendCommand(["LIKE", "7", "nobody"]));
  } catch (error) {
    console.log("error", error.message);
  }

  console.log("restart");
  await once(process.stdin, "data");
  console.log("again", await client.sendCommand(["LIKE", "1001", "42"]));
  await client.close();
  process.stdin.destroy();
}

main();
