// A viewer over https, by Node's own clients: HTTP/2 and HTTP/1.1.
//
//   node secure.mjs CA URL whole      loads the index, the playlist and every segment, once with each version
//   node secure.mjs CA URL give-up    begins to load the newest segment over HTTP/2 and aborts, several times
//   node secure.mjs CA URL certificate    shows the fingerprint of the server's certificate
//
// CA is a file with the authority's certificate. Prints one line of JSON: bytes of bodies as they came over the wire, without
// framing. The exit code is 1 when an answer was no 200.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import https from 'node:https';
import { gunzipSync } from 'node:zlib';

const GIVE_UP_AFTER_BYTES = 200_000;
const TIMES = 5;

const [file, url, what] = process.argv.slice(2);
const ca = readFileSync(file);
const { origin, pathname, search } = new URL(url);

/** A connection of HTTP/2: `get` gives status, headers and body. */
function second() {
  const session = http2.connect(origin, { ca });
  return {
    session,
    async get(path) {
      const stream = session.request({ ':path': path, 'accept-encoding': 'gzip' });
      const [headers] = await once(stream, 'response');
      const chunks = [];
      for await (const chunk of stream) {
        chunks.push(chunk);
      }
      return { status: headers[':status'], headers, body: Buffer.concat(chunks), version: session.alpnProtocol };
    },
    close: () => session.close(),
  };
}

/** The same of HTTP/1.1. */
function first() {
  const agent = new https.Agent({ ca, keepAlive: true, ALPNProtocols: ['http/1.1'] });
  return {
    async get(path) {
      const request = https.get(origin + path, { agent, headers: { 'accept-encoding': 'gzip' } });
      const [response] = await once(request, 'response');
      const version = response.socket.alpnProtocol || 'http/1.1';
      const chunks = [];
      for await (const chunk of response) {
        chunks.push(chunk);
      }
      return { status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks), version };
    },
    close: () => agent.destroy(),
  };
}

let bytes = 0;
const statuses = {};
const versions = [];

async function load(client, path) {
  const { status, headers, body, version } = await client.get(path);
  statuses[status] = (statuses[status] ?? 0) + 1;
  if (!versions.includes(version)) {
    versions.push(version);
  }
  bytes += body.length;
  return (headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString('latin1');
}

const beside = (path, name) => path.slice(0, path.lastIndexOf('/') + 1) + name;
const names = (playlist) => playlist.split('\n').filter((line) => line && !line.startsWith('#'));

/** The path of the media playlist, and its text. */
async function enter(client) {
  const index = await load(client, pathname + search);
  const media = beside(pathname, names(index)[0]);
  return { media, playlist: await load(client, media) };
}

if (what === 'certificate') {
  const { session, close } = second();
  await once(session, 'connect');
  console.log(JSON.stringify({ fingerprint: session.socket.getPeerCertificate().fingerprint256 }));
  close();
} else if (what === 'whole') {
  for (const client of [second(), first()]) {
    const { media, playlist } = await enter(client);
    const init = /URI="([^"]+\.mp4)"/.exec(playlist)[1];
    for (const name of [init, ...names(playlist)]) {
      await load(client, beside(media, name));
    }
    client.close();
  }
  console.log(JSON.stringify({ bytes, statuses, versions }));
} else {
  const client = second();
  const { media, playlist } = await enter(client);
  const path = beside(media, names(playlist).at(-1));
  const whole = bytes;
  let given = 0;
  for (let time = 0; time < TIMES; time += 1) {
    // One connection for each request, so that the next one does not read bytes of an aborted answer.
    const one = http2.connect(origin, { ca });
    const stream = one.request({ ':path': path });
    let got = 0;
    for await (const chunk of stream) {
      got += chunk.length;
      if (got >= GIVE_UP_AFTER_BYTES) {
        break;
      }
    }
    stream.close(http2.constants.NGHTTP2_CANCEL);
    one.destroy();
    given += got;
  }
  client.close();
  console.log(JSON.stringify({ bytes: whole, given, times: TIMES, statuses, versions }));
}
process.exitCode = Object.keys(statuses).every((status) => status === '200') ? 0 : 1;
