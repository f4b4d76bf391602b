// What is wrong with how the page looks, as a list of sentences. It runs inside the page.
(() => {
  const problems = [];
  const say = text => { if (problems.length < 40 && !problems.includes(text)) problems.push(text); };
  const short = text => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 40));

  if (document.documentElement.scrollWidth > window.innerWidth) {
    const wide = [...document.body.querySelectorAll("*")].filter(e => !e.closest(".scroll > *") && e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.tagName + "." + (e.className.baseVal ?? e.className)).slice(0, 3);
    say(`the body is ${document.documentElement.scrollWidth} px wide in a window of ${window.innerWidth} px: ${wide}`);
  }

  const visible = e => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";
  const ownText = e => [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join("").trim();

  // Text in plots: inside of the drawing, and not on other text.
  for (const svg of document.querySelectorAll("svg[role=img]")) {
    if (!visible(svg)) continue;
    const outer = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(e => ({e, r: e.getBoundingClientRect()}));
    for (const {e, r} of texts) {
      if (r.left < outer.left - 1 || r.right > outer.right + 1 || r.top < outer.top - 1 || r.bottom > outer.bottom + 1)
        say(`plot ${short(svg.getAttribute("aria-label"))}: text ${short(e.textContent)} is cut off`);
      if (parseFloat(getComputedStyle(e).fontSize) * outer.width / svg.viewBox.baseVal.width < 10)
        say(`plot ${short(svg.getAttribute("aria-label"))}: text ${short(e.textContent)} is smaller than 10 px`);
    }
    for (let i = 0; i < texts.length; i++) for (let j = 0; j < i; j++) {
      const a = texts[i].r, b = texts[j].r, slack = 2; // boxes are higher than letters
      if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + slack < b.bottom && b.top + slack < a.bottom)
        say(`plot ${short(svg.getAttribute("aria-label"))}: ${short(texts[j].e.textContent)} and ${short(texts[i].e.textContent)} overlap`);
    }
  }

  // Text outside of plots: not wider than its box.
  for (const e of document.querySelectorAll("h1,h2,h3,p,li,figcaption,figcaption span,.badge,.tile,.tile b,.tile span,.legend,.legend span,dt,dd"))
    if (visible(e) && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline") say(`${e.tagName} ${short(e.textContent)} is wider than its box`);

  // Contrast (WCAG 2.2, 1.4.3 and 1.4.11): text 4.5:1, lines 3:1, against what is really behind.
  const parse = c => { const m = c.match(/[\d.]+/g); return m ? {r: +m[0], g: +m[1], b: +m[2], a: m[3] === undefined ? 1 : +m[3]} : null; };
  const lin = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const lum = c => 0.2126 * lin(c.r) + 0.7152 * lin(c.g) + 0.0722 * lin(c.b);
  const ratio = (a, b) => { const x = lum(a), y = lum(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const backgroundOf = e => {
    for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c && c.a === 1) return c; }
    return {r: 255, g: 255, b: 255, a: 1};
  };
  const hold = (what, colour, grounds, least) => {
    for (const g of grounds) { const r = ratio(colour, g); if (r < least) say(`${what} has a contrast of ${r.toFixed(2)}, less than ${least}`); }
  };
  for (const e of document.body.querySelectorAll("*")) {
    if (!visible(e) || ["SCRIPT", "STYLE", "title"].includes(e.tagName) || e.closest("svg")) continue;
    if (ownText(e)) hold(`${e.tagName.toLowerCase()} ${short(ownText(e))}`, parse(getComputedStyle(e).color), [backgroundOf(e)], 4.5);
  }
  for (const svg of document.querySelectorAll("svg[role=img]")) {
    if (!visible(svg)) continue;
    const grounds = [backgroundOf(svg), ...[...svg.querySelectorAll(".band:not(.odd)")].slice(0, 1).map(e => parse(getComputedStyle(e).fill))];
    for (const e of svg.querySelectorAll("text")) hold(`plot text ${short(e.textContent)}`, parse(getComputedStyle(e).fill), grounds, 4.5);
    for (const e of svg.querySelectorAll(".line,.mark,.span")) hold(`a curve of ${short(svg.getAttribute("aria-label"))}`, parse(getComputedStyle(e).stroke), grounds, 3);
    for (const e of svg.querySelectorAll("circle")) {
      const style = getComputedStyle(e), colour = style.fill === "none" ? style.stroke : style.fill;
      hold(`a point of ${short(svg.getAttribute("aria-label"))}`, parse(colour), grounds, 3);
    }
  }
  return problems;
})()
