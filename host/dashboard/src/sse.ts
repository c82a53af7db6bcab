// Reads server-sent events from text that arrives in parts.

/** One event as it was sent. */
export interface Message {
  id: string | null;
  name: string;
  data: string;
}

export class SseReader {
  private rest = '';

  /** The events that `text` completes. */
  push(text: string): Message[] {
    const blocks = (this.rest + text.replaceAll('\r\n', '\n')).split('\n\n');
    this.rest = blocks.pop() ?? '';
    return blocks.map(read).filter((message) => message !== null);
  }
}

function read(block: string): Message | null {
  const message: Message = { id: null, name: 'message', data: '' };
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'id') {
      message.id = value;
    } else if (field === 'event') {
      message.name = value;
    } else if (field === 'data') {
      message.data += message.data === '' ? value : `\n${value}`;
    }
  }
  return message.data === '' ? null : message;
}
