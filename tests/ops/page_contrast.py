"""What of a page is hard to read, for the tests of the Lab and of the site."""

# The contrast of every text with what is behind it, by WCAG's formula. Washes lie under text as backgrounds or as rects.
CONTRAST = """() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g)?.map(Number) ?? [0, 0, 0, 0]; return m.length < 4 ? [...m, 1] : m; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (let p = e; p; p = p.parentElement) {
      const before = p === e && e.previousElementSibling?.tagName === 'rect' ? e.previousElementSibling : null;
      const rect = p.tagName === 'g' ? p.querySelector(':scope > rect') : before;
      if (rect && rect.getAttribute('fill') !== 'none') {
        const c = parse(getComputedStyle(rect).fill), t = e.getBoundingClientRect(), r = rect.getBoundingClientRect();
        if (c[3] === 1 && Math.abs(t.x + t.width / 2 - r.x - r.width / 2) < r.width / 2 && Math.abs(t.y + t.height / 2 - r.y - r.height / 2) < r.height / 2) return c;
      }
      const c = parse(getComputedStyle(p).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(e);
    if (e.closest(':disabled') || e.closest('dialog') || Number(style.opacity) < 1) continue;
    const [a, b] = [light(parse(e instanceof SVGElement ? style.fill : style.color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push([ratio.toFixed(2), e.tagName, e.className?.baseVal ?? e.className, e.textContent.trim().slice(0, 24)].join(' '));
  }
  return low;
}"""
