import{a}from"./chunk-Q4IDPP4V.js";export{a as messages};
