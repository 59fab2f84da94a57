import{a}from"./chunk-6KPBSODX.js";export{a as messages};
