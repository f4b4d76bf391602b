// Sort a table by a button in a column's head. Numbers come as data-v, largest first; what was not measured stays last.
const words = new Intl.Collator("en", {numeric: true});
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentNode, body = head.closest("table").tBodies[0], column = head.cellIndex;
  const numeric = head.classList.contains("n"), now = head.getAttribute("aria-sort");
  const up = now ? now === "descending" : !numeric;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = row => {
    const cell = row.cells[column];
    return numeric ? (cell.dataset.v === undefined ? null : Number(cell.dataset.v)) : cell.textContent.trim() === "-" ? null : cell.textContent.trim();
  };
  [...body.rows].map((row, place) => ({row, place, key: key(row)})).sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
    const d = numeric ? a.key - b.key : words.compare(a.key, b.key);
    return (up ? d : -d) || a.place - b.place;
  }).forEach(e => body.append(e.row));
});
