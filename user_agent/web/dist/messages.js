import{a}from"./chunk-2VSXKZHV.js";export{a as messages};
