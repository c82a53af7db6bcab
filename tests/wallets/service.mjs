// A wallet service of the Alby SDK whose money is in a wallet of LNbits. Its faults are set in the file CONTROL, which
// is read at each payment: {"code": "..."} refuses, {"silent": true} pays and keeps the answer.
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { NWCWalletService, NWCWalletServiceKeyPair } from "@getalby/sdk/nwc";
import { getPublicKey } from "nostr-tools";

const { RELAY, BASE, KEY, CONTROL, NIP04 } = process.env;
const METHODS = ["get_balance", "pay_invoice", "make_invoice", "lookup_invoice"];

async function lnbits(path, body) {
  const method = body ? "POST" : "GET";
  const headers = { "x-api-key": KEY, "content-type": "application/json" };
  const answer = await fetch(BASE + path, { method, headers, body: body && JSON.stringify(body) });
  return { ok: answer.ok, status: answer.status, json: await answer.json() };
}

const done = (result) => ({ result, error: undefined });
const failed = (code) => ({ result: undefined, error: { code, message: "as the test wants it" } });

function transaction(payment) {
  const seconds = (time) => Math.floor(new Date(time).getTime() / 1000);
  return {
    type: payment.amount < 0 ? "outgoing" : "incoming",
    state: payment.status === "success" ? "settled" : payment.status,
    invoice: payment.bolt11,
    payment_hash: payment.payment_hash,
    amount: Math.abs(payment.amount),
    fees_paid: Math.abs(payment.fee),
    created_at: seconds(payment.created_at),
    settled_at: payment.status === "success" ? seconds(payment.updated_at) : undefined,
  };
}

const handler = {
  async getBalance() {
    return done({ balance: (await lnbits("/api/v1/wallet")).json.balance });
  },
  async makeInvoice({ amount, description, expiry }) {
    const body = { out: false, amount: amount / 1000, unit: "sat", memo: description, expiry };
    return done(transaction((await lnbits("/api/v1/payments", body)).json));
  },
  async payInvoice({ invoice }) {
    const { code, silent } = JSON.parse(await readFile(CONTROL, "utf8"));
    if (code) return failed(code);
    const { ok, json } = await lnbits("/api/v1/payments", { out: true, bolt11: invoice });
    if (silent) return new Promise(() => {});
    if (!ok) return failed(json.detail === "Insufficient balance." ? "INSUFFICIENT_BALANCE" : "PAYMENT_FAILED");
    return done({ preimage: json.preimage ?? "", fees_paid: Math.abs(json.fee) });
  },
  async lookupInvoice({ payment_hash }) {
    const { ok, json } = await lnbits(`/api/v1/payments/${payment_hash}`);
    return ok && json.details ? done(transaction(json.details)) : failed("NOT_FOUND");
  },
};

const [wallet, client] = [randomBytes(32), randomBytes(32)];
const [walletSecret, clientSecret] = [wallet.toString("hex"), client.toString("hex")];
const service = new NWCWalletService({ relayUrl: RELAY });
await service.relay.connect();
await service.subscribe(new NWCWalletServiceKeyPair(walletSecret, getPublicKey(client)), handler);
// The announcement is sent after the subscription, so requests arrive once it is accepted.
await new Promise((resolve) => setTimeout(resolve, 0));
if (NIP04) {
  const created_at = Math.floor(Date.now() / 1000);
  const info = { kind: 13194, created_at, tags: [], content: METHODS.join(" ") };
  await service.relay.publish(await service.signEvent(info, walletSecret));
} else {
  await service.publishWalletServiceInfoEvent(walletSecret, METHODS, []);
}
const query = new URLSearchParams({ relay: RELAY, secret: clientSecret });
console.log(`uri nostr+walletconnect://${getPublicKey(wallet)}?${query}`);
