// The page's data, and the numbers packed in it.

const byId = (id) => document.getElementById(id);
const given = JSON.parse(byId("page-data").textContent);

function unpacked(text, Type) {
  // Every browser's machine is little-endian, as the page's data is.
  return new Type(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer);
}
