import{a}from"./chunk-6PATUEDW.js";export{a as messages};
