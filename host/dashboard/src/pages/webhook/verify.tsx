import { useState } from 'preact/hooks';
import { t } from '../../i18n';
import { Card, Choice, CopyButton } from '../../ui';
import { SNIPPETS, type SnippetLanguage } from './snippets';

const LANGUAGES = (Object.keys(SNIPPETS) as SnippetLanguage[]).map((language) => [language, SNIPPETS[language].name] as const);

/** Code that checks signatures, in several languages. */
export function Verify() {
  const texts = t().webhook;
  const [language, choose] = useState<SnippetLanguage>('node');
  const { name, code } = SNIPPETS[language];
  return (
    <Card title={texts.verify} actions={<CopyButton text={code} name={texts.verifyCode(name)} />}>
      <p class="muted">{texts.verifyText}</p>
      <div>
        <Choice label={texts.language} value={language} options={LANGUAGES} onChange={choose} />
      </div>
      <pre tabIndex={0} role="group" aria-label={texts.verifyCode(name)}>
        <code>{code}</code>
      </pre>
    </Card>
  );
}
