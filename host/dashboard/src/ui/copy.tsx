import { useId, useState } from 'preact/hooks';
import { t } from '../i18n';
import { Button } from './button';
import { toast } from './toast';

/** Copies `text`; the clipboard of browsers needs a secure page, so the old way helps where the service is reached by http. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const area = document.createElement('textarea');
  area.value = text;
  area.readOnly = true;
  const focused = document.activeElement;
  (document.querySelector('dialog[open]') ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  if (focused instanceof HTMLElement) {
    focused.focus();
  }
  return isCopied;
}

/** A button that copies `text`; `name` tells what it is. */
export function CopyButton({ text, name, bare = false }: { text: string; name: string; bare?: boolean }) {
  const act = async (): Promise<void> => {
    toast((await copy(text)) ? t().ui.copied(name) : t().ui.notCopied(name));
  };
  return (
    <Button icon="copy" bare={bare} label={t().ui.copyNamed(name)} onClick={() => void act()}>
      {t().ui.copy}
    </Button>
  );
}

interface CopyFieldProps {
  label: string;
  value: string;
  help?: string;
  /** Hidden until it is shown by a click. */
  secret?: boolean;
  /** Several lines. */
  long?: boolean;
}

const MASK = '••••••••••••••••';

/** A value to copy. A secret one is not in the page until it is shown. */
export function CopyField({ label, value, help, secret = false, long = false }: CopyFieldProps) {
  const id = useId();
  const [isShown, show] = useState(!secret);
  const text = isShown ? value : MASK;
  return (
    <div class="copy-field">
      <label for={id}>{label}</label>
      <div class="copy-row">
        {long ? (
          <textarea id={id} class="code" readonly rows={3} value={text} onFocus={(event) => event.currentTarget.select()} />
        ) : (
          <input id={id} class="code" readonly value={text} onFocus={(event) => event.currentTarget.select()} />
        )}
        {secret && (
          <Button
            bare
            icon={isShown ? 'hide' : 'show'}
            label={(isShown ? t().ui.hideNamed : t().ui.showNamed)(label)}
            onClick={() => show(!isShown)}
          >
            {isShown ? t().ui.hide : t().ui.show}
          </Button>
        )}
        <CopyButton text={value} name={label} bare />
      </div>
      {help && <p class="help">{help}</p>}
    </div>
  );
}
