// Code for receivers that checks the signature of a delivery, in the languages of most of them. The tests run it.

export type SnippetLanguage = 'node' | 'python' | 'php';

export const SNIPPETS: Readonly<Record<SnippetLanguage, { name: string; code: string }>> = {
  node: {
    name: 'Node.js',
    code: `import { createHmac, timingSafeEqual } from 'node:crypto';

// The body is the bytes of the request, before any parser.
export function isFromSatcast(secret, headers, body) {
  const time = headers['webhook-timestamp'];
  if (!(Math.abs(Date.now() / 1000 - Number(time)) <= 300)) {
    return false; // too old: somebody may send it again
  }
  const prefix = 'whsec_';
  const key = secret.startsWith(prefix) ? Buffer.from(secret.slice(prefix.length), 'base64') : secret;
  const signed = createHmac('sha256', key).update(headers['webhook-id'] + '.' + time + '.').update(body);
  const expected = Buffer.from('v1,' + signed.digest('base64'));
  return (headers['webhook-signature'] ?? '')
    .split(' ')
    .map((signature) => Buffer.from(signature))
    .some((signature) => signature.length === expected.length && timingSafeEqual(signature, expected));
}
`,
  },
  python: {
    name: 'Python',
    code: `import base64, hashlib, hmac, time

# The body is the bytes of the request, before any parser.
def is_from_satcast(secret, headers, body):
    sent_at = headers["webhook-timestamp"]
    if abs(time.time() - int(sent_at)) > 300:
        return False  # too old: somebody may send it again
    prefix = "whsec_"
    key = base64.b64decode(secret[len(prefix):]) if secret.startswith(prefix) else secret.encode()
    signed = f"{headers['webhook-id']}.{sent_at}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, one) for one in headers["webhook-signature"].split(" "))
`,
  },
  php: {
    name: 'PHP',
    code: `<?php
// The body is file_get_contents('php://input').
function is_from_satcast(string $secret, array $server, string $body): bool
{
    $time = $server['HTTP_WEBHOOK_TIMESTAMP'] ?? '';
    if (abs(time() - (int) $time) > 300) {
        return false; // too old: somebody may send it again
    }
    $prefix = 'whsec_';
    $key = str_starts_with($secret, $prefix) ? base64_decode(substr($secret, strlen($prefix))) : $secret;
    $signed = ($server['HTTP_WEBHOOK_ID'] ?? '') . '.' . $time . '.' . $body;
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', $signed, $key, true));
    foreach (explode(' ', $server['HTTP_WEBHOOK_SIGNATURE'] ?? '') as $signature) {
        if (hash_equals($expected, $signature)) {
            return true;
        }
    }
    return false;
}
`,
  },
};
