// Relays every stream that is published to it to the same name at each target, with node-media-server.
//
// node relay.mjs PORT FOLDER TARGET...
//
// The server starts relays only by calls, and only for existing streams, so each relay is started when its stream begins.

import NodeMediaServer from "node-media-server";

const [port, folder, ...targets] = process.argv.slice(2);
const server = new NodeMediaServer({
  bind: "127.0.0.1",
  rtmp: { port: Number(port) },
  store: { path: folder },
  record: { auto: false, path: folder },
});
server.on("postPublish", ({ streamName, streamPath }) => {
  for (const target of targets) {
    server.relayServer.addTask({ url: `${target}/${streamName}`, mode: "push", streamPath });
  }
});
await server.run();
