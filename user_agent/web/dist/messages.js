import{a}from"./chunk-XEXMCYZW.js";export{a as messages};
