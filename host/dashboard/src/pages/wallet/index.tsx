import { sats, time } from '../../format';
import { t } from '../../i18n';
import { useBalance, useConfig } from '../../store';
import { Card, Figures, Loaded, Note, Page, Time } from '../../ui';
import { Connection, useConnection } from './connection';
import { Entries } from './entries';
import { TopUp } from './topup';

export default function View() {
  const connection = useConnection();
  return (
    <Page title={t().nav.wallet}>
      <div class="columns">
        <div class="stack wide">
          <Balance />
          <TopUp connection={connection} />
        </div>
        <Connection connection={connection} />
      </div>
      <Entries />
    </Page>
  );
}

function Balance() {
  const texts = t().wallet;
  const balance = useBalance();
  const config = useConfig();
  const lowest = config.data?.limits.lowBalanceSats ?? 0;
  return (
    <Card title={texts.balance}>
      <Loaded of={balance} rows={2}>
        {({ balance, cached, walletSats, asOf }) => (
          <div class="stack">
            <Figures
              items={[[texts.credit, sats(balance)], ...(walletSats === null ? [] : [[texts.inWallet, sats(walletSats)] as const])]}
            />
            {cached && <Note kind="warning">{texts.cached}</Note>}
            {balance < lowest && <Note kind="warning">{texts.low(sats(lowest))}</Note>}
            <p class="small muted">
              {texts.asOf} <Time at={asOf} show={time} />
            </p>
          </div>
        )}
      </Loaded>
    </Card>
  );
}
