// A sender: headless Chromium that publishes its fake camera and microphone by WHIP.
//
//   node publish.mjs
//
// The page comes from a server of its own on another port, so that the service's CORS headers are needed. Each line of standard input
// is a step; each gives one line of JSON with "ok":true, or with "ok":false and "error":
//
//   publish {"url":...,"key":...}  sends an offer; gives the status, and the error body or the address of the publish. Further keys:
//                                  "port": where the media goes instead of the port in the answer; "codec": of the video
//   connected                      waits for the connection; gives its state
//   stats                          numbers of what was sent, by kind
//   state                          the state of the connection
//   leave {"key":...}              deletes the publish; gives the status
//   request {"method":...,"url":...}  gives the status of a request; "bytes" and "type": of its body
//   gone                           closes the connection without a word to the service

import { once } from 'node:events';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { launch } from './browser.mjs';

const STEP_LIMIT_MS = 30_000;
const HOST = '127.0.0.1';

const server = createServer((_, response) => {
  response.writeHead(200, { 'Content-Type': 'text/html' });
  response.end('<!doctype html><title>Sender</title>');
});
server.listen(0, HOST);
await once(server, 'listening');

const camera = ['--use-fake-device-for-media-stream=fps=30', '--use-fake-ui-for-media-stream'];
const browser = await launch(HOST, camera);
const page = await browser.newPage();
await page.goto(`http://${HOST}:${server.address().port}/`);

/** What the page does; it has no access to this file. */
const inPage = {
  async publish({ url, key, port, codec }) {
    const video = { width: 640, height: 360, frameRate: 30 };
    const media = await navigator.mediaDevices.getUserMedia({ video, audio: true });
    window.connection = new RTCPeerConnection();
    for (const track of media.getTracks()) {
      const sender = connection.addTransceiver(track, { direction: 'sendonly', streams: [media] });
      if (track.kind === 'video' && codec) {
        const all = RTCRtpSender.getCapabilities('video').codecs;
        sender.setCodecPreferences(all.filter(({ mimeType }) => mimeType === codec || mimeType === 'video/rtx'));
      }
    }
    await connection.setLocalDescription();
    const headers = { 'Content-Type': 'application/sdp', Authorization: `Bearer ${key}` };
    const body = connection.localDescription.sdp;
    const response = await fetch(url, { method: 'POST', headers, body });
    if (!response.ok) {
      connection.close();
      return { status: response.status, ...(await response.json()) };
    }
    window.place = new URL(response.headers.get('Location'), url).href;
    let sdp = await response.text();
    if (port) {
      sdp = sdp.replace(/^(a=candidate:\S+ \d+ udp \d+ \S+) \d+/gim, `$1 ${port}`);
    }
    await connection.setRemoteDescription({ type: 'answer', sdp });
    return { status: response.status, place };
  },
  async connected() {
    while (connection.connectionState === 'new' || connection.connectionState === 'connecting') {
      await new Promise((changed) => connection.addEventListener('connectionstatechange', changed, { once: true }));
    }
    return { state: connection.connectionState };
  },
  async stats() {
    const all = [...(await connection.getStats()).values()];
    const sent = all.filter(({ type }) => type === 'outbound-rtp');
    return Object.fromEntries(sent.map((stream) => [stream.kind, stream]));
  },
  state: async () => ({ state: connection.connectionState }),
  async leave({ key }) {
    const headers = { Authorization: `Bearer ${key}` };
    const { status } = await fetch(place, { method: 'DELETE', headers });
    return { status };
  },
  async request({ method, url, bytes, type }) {
    const body = bytes && { body: 'x'.repeat(bytes), headers: { 'Content-Type': type } };
    const { status } = await fetch(url ?? place, { method, ...body });
    return { status };
  },
  async gone() {
    connection.close();
    return {};
  },
};

function inTime(work) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_LIMIT_MS} ms`)), STEP_LIMIT_MS);
  });
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...rest] = line.split(' ');
  try {
    if (!inPage[name]) {
      throw new Error(`there is no step "${name}"`);
    }
    const result = await inTime(page.evaluate(inPage[name], JSON.parse(rest.join(' ') || 'null')));
    console.log(JSON.stringify({ step: name, ok: true, ...result }));
  } catch (error) {
    console.log(JSON.stringify({ step: name, ok: false, error: error.message }));
  }
}
await browser.close();
server.close();
