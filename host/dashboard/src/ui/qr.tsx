import { useEffect, useState } from 'preact/hooks';

/** A QR code. `label` tells screen readers that the text stands beside it. */
export function Qr({ text, label }: { text: string; label: string }) {
  const [rows, setRows] = useState<boolean[][]>([]);
  useEffect(() => {
    let isGone = false;
    void import('uqr').then(({ encode }) => {
      if (!isGone) {
        setRows(encode(text, { ecc: 'M', border: 2 }).data);
      }
    });
    return () => {
      isGone = true;
    };
  }, [text]);
  const dots = rows.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])));
  return (
    <svg
      class="qr"
      viewBox={`0 0 ${rows.length || 1} ${rows.length || 1}`}
      role="img"
      aria-label={label}
      shape-rendering="crispEdges"
    >
      <path d={dots.join('')} />
    </svg>
  );
}
